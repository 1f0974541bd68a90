"""Parsing unit files, without a machine."""

from __future__ import annotations

import unittest

from ..units import Bad, parse, seconds

SERVICE = "[Unit]\nSuccessAction=poweroff\n[Service]\nExecStart=/bin/true -x\nRestartSec=2\n"


class Units(unittest.TestCase):
    def refused(self, name: str, text: str) -> str:
        with self.assertRaises(Bad) as caught:
            parse(name, text)
        return str(caught.exception)

    def test_a_unit_is_its_settings(self) -> None:
        unit = parse("a.service", f"# why\n\n{SERVICE}")
        self.assertEqual(unit.get("ExecStart"), "/bin/true -x")
        self.assertEqual(unit.seconds("RestartSec"), 2)
        self.assertEqual(unit.get("Restart", "no"), "no")

    def test_a_typo_is_an_error(self) -> None:
        for line in ("ExecStrat=/bin/true", "ExecStart", "OnBootSec=1", "Restart=sometimes"):
            self.assertIn("a.service", self.refused("a.service", f"{SERVICE}{line}\n"))
        self.assertIn("[Sevrice]", self.refused("a.service", "[Sevrice]\n"))
        self.assertIn("not known", self.refused("a.service", "ExecStart=/bin/true\n"))

    def test_a_unit_without_its_purpose_is_an_error(self) -> None:
        self.assertIn("no ExecStart", self.refused("a.service", "[Service]\nType=oneshot\n"))
        self.assertIn("without a time", self.refused("a.timer", "[Timer]\nAccuracySec=1\n"))

    def test_spans_are_read_as_systemd_reads_them(self) -> None:
        for text, wanted in (("90", 90), ("90s", 90), ("1h 30min", 5400), ("100ms", 0.1)):
            self.assertEqual(seconds(text), wanted)
        for text in ("", "soon", "1fortnight", "1s!"):
            with self.assertRaises(Bad):
                seconds(text)
