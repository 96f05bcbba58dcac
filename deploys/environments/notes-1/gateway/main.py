"""The gateway."""

from notes import Gateway, GatewayService

if __name__ == "__main__":
    GatewayService("gateway").run(Gateway)
