"""Names that files and folders of a run may have."""

import re
import unicodedata

from tidewalk.core.errors import StoreError

_MOST_SIGNS = 64
_NAME_RULE = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_MOST_SIGNS - 1}}}")


def check_name(name: str, what: str) -> str:
    """The name itself, when it is safe as a file name; else a StoreError that says where it came from (`what`)."""
    if not _NAME_RULE.fullmatch(name):
        raise StoreError(
            f"{what}: the name {name!r} cannot be used. Allowed are 1 to 64 of the letters A to Z and a to z, digits, "
            "dots, underscores and hyphens, the first a letter or digit."
        )
    return name


def check_folder_name(name: str, what: str) -> str:
    """The name itself, when a folder of it can be made on every system and typed; else a StoreError as `check_name`.

    Letters may be of any script, accents apart from their letter (as macOS stores them) included. A leading hyphen
    would be an option, a leading dot hide the folder, and a dot or blank at the end is lost on Windows.
    """
    kinds = [unicodedata.category(sign)[0] for sign in name]
    is_known = all(sign in " ._-" or kind in "LNM" for sign, kind in zip(name, kinds, strict=True))
    if not (is_known and 1 <= len(name) <= _MOST_SIGNS and kinds[0] in "LN" and name[-1] not in " ."):
        raise StoreError(
            f"{what}: the name {name!r} cannot be used. Allowed are 1 to {_MOST_SIGNS} letters and digits of any "
            "script, blanks, dots, underscores and hyphens; the first is a letter or digit, the last no blank or dot."
        )
    return name
