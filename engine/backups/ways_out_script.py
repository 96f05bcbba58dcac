"""Runs on a scratch server: looks for routes that lead beyond its own network. Leaves ``RESULT``: {"routes"}.

All tables are read, whichever rule leads to them: one that no packet of today's takes may be tomorrow's.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import ipaddress
import json
import subprocess

# Routes of these kinds end here, or nowhere.
ENDS = ("local", "broadcast", "multicast", "anycast", "unreachable", "blackhole", "prohibit", "throw")
BEYOND = ("gateway", "via", "nexthops", "nhid", "encap")
NEAR = {
    "-4": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "224.0.0.0/4"),
    "-6": ("fc00::/7", "fe80::/10", "ff00::/8"),
}
EVERYWHERE = {"-4": "0.0.0.0/0", "-6": "::/0"}
LOOPBACK = "lo"


def network(text):
    return ipaddress.ip_network(text)


def routes(family):
    asked = ("ip", family, "-json", "route", "show", "table", "all")
    # Where the kernel has no such protocol the answer is empty, or the family is refused.
    answer = subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout
    return json.loads(answer or b"[]")


def leads_out(route, family):
    if route.get("type", "unicast") in ENDS or route.get("dev") == LOOPBACK:
        return False
    if any(key in route for key in BEYOND):
        return True
    reached = network(EVERYWHERE[family] if route["dst"] == "default" else route["dst"])
    # On the link, but to what no single link has.
    return not any(reached.subnet_of(network(near)) for near in NEAR[family])


def told(route):
    words = [route["dst"]]
    words += [f"over {route['gateway']}"] if "gateway" in route else []
    words += [f"({route['dev']})"] if "dev" in route else []
    words += [f"in table {route['table']}"] if "table" in route else []
    return " ".join(words)


RESULT = {"routes": [told(route) for family in EVERYWHERE for route in routes(family) if leads_out(route, family)]}
