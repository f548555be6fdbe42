"""Array types of the device path.

Axis letters, used in every annotation and checked at run time in the tests only: `T` bars, `F` features, `L` look-back,
`W` windows, `M` members, `E` lanes, `B` batch, `P` positions, `A` actions, `C` capacity, `N` n-step, `D` observation,
`K` words of a replay record.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float32, Int8, Int32, Key, PyTree, UInt32

if TYPE_CHECKING:
    HostOrDevice: TypeAlias = Any
else:
    # Leaves of records that are made on the host and uploaded whole; no static checker can tell which one a leaf is.
    HostOrDevice = Array | np.ndarray

__all__ = ["Array", "Bool", "Float32", "HostOrDevice", "Int8", "Int32", "Key", "PyTree", "UInt32"]
