"""The gateway, which knows its first administrator from its binding."""

from notes import Gateway, GatewayService


class AdministeredService(GatewayService):
    def prove(self) -> None:
        super().prove()
        member = self.document["binding"]["bootstrap_admin"]
        if member is not None:
            with self.database.work() as cursor:
                # Somebody's word against it, from before a restart of this machine, is not undone.
                cursor.execute("INSERT INTO identities VALUES (%s, true) ON CONFLICT DO NOTHING", (member,))


if __name__ == "__main__":
    AdministeredService("gateway").run(Gateway)
