"""Devices are described as on the command line, and validated with the same messages."""

import json
import pickle
import re
import subprocess

import pytest

import remap_ssd


def test_presets_are_the_command_lines(program):
    listed = json.loads(subprocess.run([program, "presets", "--json"], capture_output=True, text=True, check=True).stdout)
    assert [preset.to_dict() for preset in remap_ssd.presets()] == listed
    for preset in listed:
        printed = subprocess.run([program, "presets", "--toml", preset["name"]], capture_output=True, text=True, check=True)
        # The command line's file has a comment for each key, and another order.
        assert remap_ssd.Config.from_toml(printed.stdout) == remap_ssd.Config(preset["name"])


def test_values_are_replaced_and_the_rest_stays():
    config = remap_ssd.Config("fast21-32g", scheme="nlog", flash={"read_ns": 40_000}, firmware={"gc_free": 0.2}, queue_depth=4)
    preset = remap_ssd.Config("fast21-32g")
    assert config.firmware.scheme == "nlog" and config["firmware"]["gc_free"] == 0.2 and config.queue_depth == 4
    assert config.flash.read_ns == 40_000 and config.flash.program_ns == preset.flash.program_ns
    assert preset.replace(scheme="nlog", flash={"read_ns": 40_000}, gc_free=0.2, queue_depth=4) == config
    assert remap_ssd.Config.from_toml(config.to_toml()) == config == pickle.loads(pickle.dumps(config))
    assert config != preset and len({config, preset}) == 2


def test_a_share_of_a_device_is_smaller():
    whole = remap_ssd.Config("fast21-32g")
    part = remap_ssd.Config("fast21-32g", scale="1/64")
    assert part == remap_ssd.Config("fast21-32g", scale=1 / 64) == whole.replace(scale="1/64")
    assert part.geometry.pages_per_block * 64 == whole.geometry.pages_per_block
    assert part.addressable_pages == int(part.firmware.lpns * part.addressable)


@pytest.mark.parametrize(
    "toml, values",
    [
        ('preset = "none"\n', {"preset": "none"}),
        ('preset = "fast21-32g"\nscale = 3\n', {"scale": 3}),
        ('preset = "fast21-32g"\n[firmware]\nscheme = "x"\n', {"scheme": "x"}),
        ('preset = "fast21-32g"\n[flash]\nread_ns = 0\n', {"flash": {"read_ns": 0}}),
        ('preset = "fast21-32g"\ncolour = 3\n', {"colour": 3}),
    ],
)
def test_mistakes_are_said_as_the_command_line_says_them(tmp_path, refusal, toml, values):
    path = tmp_path / "device.toml"
    path.write_text(toml)
    _, said = refusal("--config", str(path))
    with pytest.raises(ValueError) as raised:
        remap_ssd.Config(**values)
    assert re.sub(r"line \d+: ", "", said) == f"error: {path}: {raised.value}\n"
    with pytest.raises(ValueError) as raised:
        remap_ssd.Config.load(path)
    assert said == f"error: {raised.value}\n"
