"""The pytest fixture, with real cuts on a disk without a file system. Without FUSE the tests are skipped."""

import pytest


def write(block, text, more=""):
    return f"printf {text} | dd of=$FILE seek={block} bs=4096 conv=notrunc{more} status=none; "


def has(block, text):
    return f"dd if=$FILE skip={block} bs=4096 count=1 status=none | grep -aq {text}"


# The second write must not be there without the first.
CHECK = f"! {has(9, 'second')} || {has(3, 'first')}"


@pytest.fixture(autouse=True)
def the_command_line(monkeypatch, program):
    monkeypatch.setenv("REMAP_SSD", program)


def test_a_program_that_syncs_passes(torture):
    workload = write(3, "first", ",fsync") + write(9, "second")
    found = torture(workload, CHECK, fs=None, options=["--size", "16MiB"], missing="skip")
    assert (found["result"], found["cuts"]) == ("passed", 20)


def test_a_program_that_does_not_fails_with_a_code_that_replays_it(torture):
    workload = write(3, "first") + write(9, "second")
    with pytest.raises(pytest.fail.Exception, match=r"replay: remap-ssd torture --replay '\S+' --from") as failed:
        torture(workload, CHECK, fs=None, rounds=60, options=["--size", "16MiB"], missing="skip")
    assert "a power cut in round" in str(failed.value)


def test_the_firmware_can_be_chosen(torture):
    workload = write(3, "first", ",fsync") + write(9, "second")
    found = torture(workload, CHECK, fs=None, dedup=True, options=["--size", "16MiB"], missing="skip")
    assert found["device"] == "remap-ssd+dedup"


def test_a_program_that_is_a_host_needs_no_file(torture, program):
    io = f"'{program}' io --connect $ADDRESS"
    workload = f"echo one | {io} write --lba 3 --file - --fua; echo one > $MARKS"
    check = f"! grep -q one $MARKS || {io} read --lba 3 | grep -aq one"
    found = torture(workload, check, nvme_tcp=True, rounds=5, options=["--size", "16MiB"])
    assert found["nvme_tcp"] and found["recording"]["marks"] == 1


def test_a_check_that_fails_without_a_cut_is_no_power_cut(torture):
    with pytest.raises(pytest.fail.Exception, match="without any power cut"):
        torture("true", "false", fs=None, options=["--size", "16MiB"], missing="skip")


def test_a_mistake_in_the_arguments_is_no_reason_to_skip(torture):
    with pytest.raises(pytest.fail.Exception):
        torture("true", "true", fs=None, options=["--no-such-option"], missing="skip")
