"""Names of QuantConnect LEAN's futures files, which hold what the lines leave out: root, contract month and day.

Source: LEAN's own data folder, `Data/future/<market>/<resolution>/<root>`, whose samples of ES are in UTC: the opening
minute of New York, that of most volume, is 14:30 in winter.
"""

import datetime
import re
from dataclasses import dataclass

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9
from tidewalk.data.contracts.specs import MONTH_CODES

_NAME = re.compile(
    r"(?:(?P<day>\d{8})_)?(?P<root>[a-z0-9]{1,6})_(?:(?P<length>minute|second)_)?(?P<kind>trade|quote|openinterest)"
    r"_(?P<year>(?:19|20)\d{2})(?P<month>0[1-9]|1[0-2])(?:_\d+)*\.csv"
)

LENGTHS_NS = {"second": E9, "minute": 60 * E9}


@dataclass(frozen=True)
class LeanName:
    """What the name of a LEAN file says.

    Attributes:
        label: contract code, such as "ESZ3".
        day: UTC day of its rows, days since 1970-01-01; None where the rows hold dates.
        interval_ns: bar length, None where it is not in the name (bars of hours and days).
    """

    label: str
    day: int | None
    interval_ns: int | None = None


def lean_name(name: str, first_line: str) -> LeanName | None:
    """What the name of a file says, None where it is not one of LEAN's.

    Raises:
        DataError: a LEAN file of quotes or of open interest.
    """
    found = _NAME.fullmatch(re.split(r"[/\\!]", name)[-1].lower())
    if found is None or re.match(r"\d{1,8},|\d{8} \d{2}:\d{2},", first_line) is None:
        return None
    if found["kind"] != "trade":
        raise DataError(f"{name}: LEAN's {found['kind']} file; bars of trades are needed, as in the ..._trade files.")
    label = f"{found['root'].upper()}{MONTH_CODES[int(found['month']) - 1]}{found['year'][-1]}"
    if found["day"] is None:
        return LeanName(label, None)
    try:
        day = datetime.datetime.strptime(found["day"], "%Y%m%d").date()
    except ValueError:
        return None
    return LeanName(label, (day - datetime.date(1970, 1, 1)).days, LENGTHS_NS.get(found["length"]))
