"""The lab keeps its promises on this machine's kernel."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import InvalidInput, Refused
from engine.provision.providers.lab import HostSpec, Lab, default_user_data, is_lab_address
from engine.provision.providers.lab.host import answers_ssh
from engine.provision.providers.lab.identity import public_half
from tests.lab.conftest import PACKAGES, MakeLab
from tests.lab.lab_tools import inside, light, private_key, ssh, start, state_dir, traces
from tests.lab.waiting import until

POINTS_AT_MOST = 60


def test_a_host_is_a_real_debian_server(lab: Lab) -> None:
    key = public_half(private_key(lab))
    lab.up([HostSpec("oak", default_user_data("ops", key)), HostSpec("ash", default_user_data("ops", key))])
    lab.wait_ready(["oak", "ash"])

    assert "status: done" in ssh(lab, "oak", "cloud-init status")
    assert "Valid" in ssh(lab, "oak", "sudo -n cloud-init schema --system")
    assert ssh(lab, "oak", "sudo -n id -u; hostname; cat /proc/1/comm") == "0\noak\nsystemd\n"
    assert ssh(lab, "oak", "systemctl --failed --no-legend") == ""
    assert ssh(lab, "oak", "getent hosts localhost oak | wc -l").strip() == "2"
    assert ssh(lab, "oak", "cat /etc/machine-id") != ssh(lab, "ash", "cat /etc/machine-id")
    assert lab.find_required("oak").host_key != lab.find_required("ash").host_key


def test_a_host_cannot_reach_the_outside(lab: Lab) -> None:
    start(lab, "elm")
    assert "default" not in inside(lab, "elm", "ip route; ip -6 route")
    assert is_lab_address(lab.find_required("elm").address)


def test_up_of_a_running_host_changes_nothing(lab: Lab) -> None:
    start(lab, "fir")
    before = lab.find_required("fir"), inside(lab, "fir", "cat /proc/sys/kernel/random/boot_id")
    start(lab, "fir")
    assert (lab.find_required("fir"), inside(lab, "fir", "cat /proc/sys/kernel/random/boot_id")) == before


def test_a_disk_survives_down_but_not_rebuild(make_lab: MakeLab) -> None:
    lab = make_lab()
    start(lab, "maple")
    inside(lab, "maple", "echo kept > /root/note")
    before = lab.find_required("maple")

    lab.down(["maple"])
    assert not lab.find_required("maple").running
    start(lab, "maple")
    assert inside(lab, "maple", "cat /root/note") == "kept\n"
    assert lab.find_required("maple").host_key == before.host_key

    lab.rebuild(light(lab, "maple"))
    lab.wait_ready(["maple"])
    assert inside(lab, "maple", "ls /root") == ""
    assert lab.find_required("maple").host_key != before.host_key
    assert lab.find_required("maple").address == before.address
    assert ssh(lab, "maple", "hostname") == "maple\n"


def test_a_clone_has_the_disk_but_not_the_identity(make_lab: MakeLab) -> None:
    lab = make_lab()
    start(lab, "maple")
    inside(lab, "maple", "echo kept > /root/note; rm -r /etc/skel; mkdir /etc/skel; rm /etc/motd")
    with pytest.raises(Refused):
        lab.clone("maple", light(lab, "cedar"))
    lab.down(["maple"])
    lab.clone("maple", light(lab, "cedar"))
    start(lab, "maple")
    lab.wait_ready(["cedar"])

    assert ssh(lab, "cedar", "hostname; sudo -n cat /root/note; ls -A /etc/skel") == "cedar\nkept\n"
    assert inside(lab, "cedar", "ls /etc/motd || true") == ""
    assert ssh(lab, "cedar", "cat /etc/machine-id") != ssh(lab, "maple", "cat /etc/machine-id")
    assert lab.find_required("cedar").host_key != lab.find_required("maple").host_key
    assert lab.find_required("cedar").address != lab.find_required("maple").address


def test_a_cloud_host_can_be_cloned(make_lab: MakeLab) -> None:
    lab = make_lab()
    user_data = default_user_data("ops", public_half(private_key(lab)))
    lab.up([HostSpec("maple", user_data)])
    lab.wait_ready(["maple"])
    lab.down(["maple"])
    lab.clone("maple", HostSpec("cedar", user_data))
    lab.wait_ready(["cedar"])
    assert ssh(lab, "cedar", "hostname; sudo -n cloud-init status") == "cedar\nstatus: done\n"


def test_a_host_can_reboot_itself(lab: Lab) -> None:
    start(lab, "pine")
    boot_id = "cat /proc/sys/kernel/random/boot_id; systemctl show --property=UserspaceTimestampMonotonic"
    before = inside(lab, "pine", boot_id)
    inside(lab, "pine", "systemctl reboot")

    def is_up_again() -> bool:
        try:
            return ssh(lab, "pine", boot_id) != before
        except subprocess.CalledProcessError:
            return False

    until(is_up_again, "the host has booted again", 60)


def test_down_leaves_nothing(make_lab: MakeLab) -> None:
    lab = make_lab()
    start(lab, "maple", "cedar")
    assert traces(lab)
    lab.down(["maple"])
    assert [trace for trace in traces(lab) if "maple" in trace] == []
    assert answers_ssh(lab.find_required("cedar").address, 22)
    lab.down()
    assert traces(lab) == set()
    lab.down()


def test_down_is_heard_by_a_host_that_just_boots(make_lab: MakeLab) -> None:
    lab = make_lab()
    lab.up([light(lab, "maple")])
    lab.down()
    assert traces(lab) == set()
    start(lab, "maple")


def test_a_deleted_state_directory_leaves_nothing_after_down(make_lab: MakeLab) -> None:
    lab = make_lab()
    start(lab, "maple")
    lab.state.host_file("maple").unlink()
    lab.down()
    assert traces(lab) == set()


def test_two_labs_do_not_touch_each_other(make_lab: MakeLab) -> None:
    one, other = make_lab("one"), make_lab("other")
    start(one, "maple")
    start(other, "maple")
    assert one.gateway_address != other.gateway_address
    host = other.find_required("maple")
    one.destroy()
    assert traces(one) == set()
    assert other.find_required("maple") == host
    assert ssh(other, "maple", "hostname") == "maple\n"


def test_a_cut_host_runs_on_and_comes_back(lab: Lab) -> None:
    start(lab, "yew")
    address = lab.find_required("yew").address
    lab.cut("yew")
    assert not answers_ssh(address, 22)
    assert inside(lab, "yew", "systemctl is-active ssh") == "active\n"
    lab.restore_link("yew")
    until(lambda: answers_ssh(address, 22), "the host answers again")


def test_a_small_disk_fills_up(lab: Lab) -> None:
    lab.up([light(lab, "ivy", disk_limit_bytes=16 * 1024 * 1024)])
    lab.wait_ready(["ivy"])
    with pytest.raises(subprocess.CalledProcessError) as failure:
        inside(lab, "ivy", "dd if=/dev/zero of=/var/fill bs=1M")
    assert "No space left on device" in failure.value.stderr
    inside(lab, "ivy", "rm /var/fill && echo fits > /var/small")


def test_twenty_light_hosts(make_lab: MakeLab) -> None:
    lab = make_lab()
    slugs = [f"host-{number:02}" for number in range(20)]
    start(lab, *slugs)
    hosts = lab.list()
    assert [host.slug for host in hosts] == slugs
    assert len({host.address for host in hosts}) == len({host.host_key for host in hosts}) == 20
    assert {ssh(lab, slug, "hostname").strip() for slug in slugs} == set(slugs)
    lab.destroy()
    assert traces(lab) == set()
    assert lab.list() == ()


@pytest.mark.parametrize("call", ["up", "rebuild", "down", "destroy"])
def test_a_killed_call_leaves_nothing_that_the_next_one_trips_over(make_lab: MakeLab, call: str) -> None:
    lab = make_lab()
    for point in range(POINTS_AT_MOST):
        if call != "up":
            start(lab, "maple")
        if _killed(lab, call, point).returncode == 0:
            break
        start(lab, "maple")
        assert ssh(lab, "maple", "hostname") == "maple\n"
        assert len([trace for trace in traces(lab) if trace.startswith("/run/netns/")]) == 1
        if call in ("up", "destroy"):
            lab.destroy()
            assert traces(lab) == set()
    else:
        pytest.fail(f"{call} has more than {POINTS_AT_MOST} points")
    assert point > 3, "nothing was killed"


def test_calls_at_the_same_time_wait_for_each_other(make_lab: MakeLab) -> None:
    lab = make_lab()
    argv = _killed_lab(lab, "up", POINTS_AT_MOST)
    calls = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [call.communicate()[0] for call in calls]
    assert [call.returncode for call in calls] == [0, 0, 0]
    assert sum(text.count("new host") for text in said) == 1
    lab.wait_ready(["maple"])


def test_the_model_stub_lives_as_long_as_the_lab(make_lab: MakeLab, tmp_path: Path) -> None:
    (tmp_path / "stub.py").write_text(
        "import argparse, http.server, pathlib\n"
        "arguments = argparse.ArgumentParser()\n"
        "for name in ('--host', '--port', '--log'): arguments.add_argument(name)\n"
        "given = arguments.parse_args()\n"
        "pathlib.Path(given.log).write_text('started')\n"
        "class Answer(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(b'model')\n"
        "http.server.ThreadingHTTPServer((given.host, int(given.port)), Answer).serve_forever()\n"
    )
    lab = make_lab(model_stub="stub.py", model_stub_port=8099)
    start(lab, "maple")
    url = f"http://{lab.gateway_address}:8099/"
    ask = f"python3 -c 'import urllib.request; print(urllib.request.urlopen(\"{url}\").read())'"
    assert "b'model'" in inside(lab, "maple", ask)
    assert lab.state.stub_log.read_text() == "started"

    stub = lab.state.read_stub()
    lab.up([light(lab, "maple")])
    assert lab.state.read_stub() == stub

    lab.down()
    assert lab.state.read_stub() is None
    assert traces(lab) == set()


def test_unknown_and_impossible_hosts_are_refused(lab: Lab) -> None:
    with pytest.raises(Refused):
        lab.down(["nobody"])
    for slug in ("../x", "a/b", "-x", "x\n", "x", "X1", ""):
        with pytest.raises(InvalidInput):
            light(lab, slug)


def _killed_lab(lab: Lab, call: str, point: int) -> tuple[str, ...]:
    program = Path(__file__).with_name("killed_lab.py")
    return (sys.executable, str(program), str(state_dir(lab)), call, str(point), *PACKAGES)


def _killed(lab: Lab, call: str, point: int) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(_killed_lab(lab, call, point), capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done
