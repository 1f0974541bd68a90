"""Matching types to requirements, with moto's data on types, which are EC2's."""

import unittest
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from ..requirements import Unclear, check, matching

SMALL = {"VCpuCount": {"Min": 2, "Max": 2}, "MemoryMiB": {"Min": 0}}


def match(architecture: str = "x86_64", **more: Any) -> list[str]:
    return matching(SMALL | more, [architecture], INSTANCE_TYPES)


class Requirements(unittest.TestCase):
    def test_vcpus_and_memory_are_ranges(self) -> None:
        memory = {"Min": 8192, "Max": 8192}
        self.assertEqual(match(MemoryMiB=memory, AllowedInstanceTypes=["*5.large"]), ["m5.large"])
        self.assertEqual(match(AllowedInstanceTypes=["m5.xlarge"]), [])
        open_end = matching(
            {"VCpuCount": {"Min": 4}, "MemoryMiB": {"Min": 0}, "AllowedInstanceTypes": ["m5.*arge"]},
            ["x86_64"],
            INSTANCE_TYPES,
        )
        self.assertIn("m5.24xlarge", open_end)
        self.assertNotIn("m5.large", open_end)

    def test_the_smallest_is_first(self) -> None:
        self.assertEqual(
            match(AllowedInstanceTypes=["r5.large", "m5.large", "c5.large"]),
            ["c5.large", "m5.large", "r5.large"],
        )

    def test_patterns_allow_or_exclude(self) -> None:
        self.assertTrue(all(name.startswith("m5.") for name in match(AllowedInstanceTypes=["m5.*"])))
        self.assertIn("m5.large", match())
        self.assertNotIn("m5.large", match(ExcludedInstanceTypes=["m5.*"]))

    def test_burstable_types_are_left_out_unless_they_are_included(self) -> None:
        t3 = {"AllowedInstanceTypes": ["t3.large", "m5.large"]}
        self.assertEqual(match(**t3), ["m5.large"])
        self.assertIn("t3.large", match(**t3, BurstablePerformance="included"))
        self.assertEqual(match(**t3, BurstablePerformance="required"), ["t3.large"])

    def test_bare_metal_is_left_out_unless_it_is_included(self) -> None:
        metal = {"VCpuCount": {"Min": 96}, "AllowedInstanceTypes": ["m5.metal"]}
        self.assertEqual(match(**metal), [])
        self.assertEqual(match(**metal, BareMetal="included"), ["m5.metal"])

    def test_the_architecture_decides(self) -> None:
        both = {"AllowedInstanceTypes": ["m6g.large", "m5.large"]}
        self.assertEqual(match("x86_64", **both), ["m5.large"])
        self.assertEqual(match("arm64", **both), ["m6g.large"])

    def test_makers_disks_and_accelerators(self) -> None:
        self.assertEqual(
            match(AllowedInstanceTypes=["m5.large", "m5a.large"], CpuManufacturers=["amd"]),
            ["m5a.large"],
        )
        disks = {"AllowedInstanceTypes": ["m5.large", "m5d.large"]}
        self.assertEqual(match(**disks, LocalStorage="excluded"), ["m5.large"])
        self.assertEqual(match(**disks, LocalStorage="required"), ["m5d.large"])
        graphics = {"VCpuCount": {"Min": 4, "Max": 4}, "AllowedInstanceTypes": ["g4dn.*", "m5.*"]}
        self.assertEqual(match(**graphics, AcceleratorCount={"Max": 0}), ["m5.xlarge"])
        self.assertEqual(match(**graphics, AcceleratorCount={"Min": 1}), ["g4dn.xlarge"])

    def test_unclear_requirements_are_refused(self) -> None:
        for wanted, code in (
            ({"VCpuCount": {"Min": 1}}, "MissingParameter"),
            ({"MemoryMiB": {"Min": 1}}, "MissingParameter"),
            (
                SMALL | {"AllowedInstanceTypes": ["a*"], "ExcludedInstanceTypes": ["b*"]},
                "InvalidParameterCombination",
            ),
        ):
            with self.assertRaises(Unclear) as caught:
                check(wanted)
            self.assertEqual(caught.exception.code, code)
        check(SMALL)
