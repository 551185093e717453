"""Numbers as .NET writes and reads them under a culture of the operating system, which the Udacity simulator does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import copysign


@dataclass(frozen=True)
class NumberFormat:
    """The part of .NET's ``NumberFormatInfo`` that ``ToString("N4")`` and ``float.Parse`` use."""

    decimal: str = "."
    group: str = ","
    """Separator between thousands."""
    negative: str = "-{}"

    def n4(self, value: float) -> str:
        """``value.ToString("N4")``: four decimals, thousands separated, no sign on what rounds to zero."""
        whole, decimals = f"{abs(value):,.4f}".split(".")
        text = whole.replace(",", self.group) + self.decimal + decimals
        return self.negative.format(text) if round(value, 4) < 0 else text

    def parse(self, text: str) -> float:
        """``float.Parse(text)``: group separators count for nothing ("0.25" is 25 in de-DE); raises where .NET does."""
        group, decimal = re.escape(self.group), re.escape(self.decimal)
        form = rf"\s*([+\-\u2212]?)((?:[0-9][0-9{group}]*)?)(?:{decimal}([0-9]*))?([eE][+-]?[0-9]+)?\s*"
        match = re.fullmatch(form, text)
        if match is None or not (match[2] or match[3]):
            raise ValueError(f"'{text}' is no number here")
        sign, whole, decimals, exponent = (part or "" for part in match.groups())
        value = float(f"{whole.replace(self.group, '') or '0'}.{decimals or '0'}{exponent}")
        return copysign(value, -1.0 if sign in ("-", "\u2212") else 1.0) if sign else value


NUMBER_FORMATS = {
    "en-US": NumberFormat(".", ",", "-{}"),
    "de-DE": NumberFormat(",", ".", "-{}"),
    "de-CH": NumberFormat(".", "'", "-{}"),
    "fr-FR": NumberFormat(",", "\u00a0", "-{}"),
    "pl-PL": NumberFormat(",", "\u00a0", "-{}"),
    "hr-HR": NumberFormat(",", ".", "- {}"),
    "sv-SE": NumberFormat(",", "\u00a0", "\u2212{}"),
    "ar-SA": NumberFormat(".", ",", "{}-"),
    "fa-IR": NumberFormat("/", ",", "{}-"),
}
"""One culture for each way in which Mono's 340 cultures differ here."""
