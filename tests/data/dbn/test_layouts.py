"""Record layouts, field by field against the vendor's own."""

import databento_dbn
import numpy as np
import pytest

from tidewalk.data.dbn.layouts import LAYOUTS, RTYPES, layout_of

VENDOR = {
    **dict.fromkeys(("ohlcv-1s", "ohlcv-1m", "ohlcv-1h", "ohlcv-1d"), databento_dbn.OHLCVMsg),
    "trades": databento_dbn.TradeMsg,
    **dict.fromkeys(("tbbo", "mbp-1"), databento_dbn.MBP1Msg),
    "mbp-10": databento_dbn.MBP10Msg,
    **dict.fromkeys(("bbo-1s", "bbo-1m"), databento_dbn.BBOMsg),
    **dict.fromkeys(("cmbp-1", "tcbbo"), databento_dbn.CMBP1Msg),
    **dict.fromkeys(("cbbo-1s", "cbbo-1m"), databento_dbn.CBBOMsg),
    "definition": databento_dbn.InstrumentDefMsg,
    "statistics": databento_dbn.StatMsg,
    "symbol mapping": databento_dbn.SymbolMappingMsg,
}
VENDOR_OLDER = {
    ("definition", 1): databento_dbn.InstrumentDefMsgV1,
    ("definition", 2): databento_dbn.InstrumentDefMsgV2,
    ("statistics", 1): databento_dbn.StatMsgV1,
    ("statistics", 2): databento_dbn.StatMsgV1,
    ("symbol mapping", 1): databento_dbn.SymbolMappingMsgV1,
}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("schema", list(LAYOUTS))
def test_fields_lie_where_the_vendor_has_them(schema: str, version: int) -> None:
    theirs = np.dtype(VENDOR_OLDER.get((schema, version), VENDOR[schema])._dtypes)
    ours = layout_of(schema, version, ts_out=False)
    assert ours.itemsize == theirs.itemsize
    for name in ours.names:
        assert ours.fields[name] == theirs.fields[name], name


def test_send_time_makes_a_record_longer() -> None:
    layout = layout_of("definition", 2, ts_out=True)
    assert layout.itemsize == 408
    assert layout.fields["raw_symbol"][1] == 200


def test_record_types_are_the_vendors() -> None:
    types = {str(kind): int(kind) for kind in databento_dbn.RType.variants()}
    other = {"trades": "mbp-0", "definition": "instrument-def", "symbol mapping": "symbol-mapping"}
    for schema, rtypes in RTYPES.items():
        assert types.get(other.get(schema, schema), types["mbp-1"]) in rtypes, schema
    assert RTYPES["tbbo"][0] == types["mbp-1"]  # what files of the schema hold; its own type is newer
