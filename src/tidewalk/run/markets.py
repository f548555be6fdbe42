"""The markets of a study: read from data files, or loaded as they were prepared; and the study planned on them."""

import dataclasses
import functools

from tidewalk.core.errors import ConfigError, DataError, did_you_mean
from tidewalk.data.contracts.roll_weeks import NoRollWeeks
from tidewalk.data.contracts.specs import root_of
from tidewalk.data.load import DataConfig
from tidewalk.market.device import MarketData, load_market
from tidewalk.market.prepare import SeriesConfig
from tidewalk.run import ambient, compile_cache, mesh
from tidewalk.run.console import reading, tell
from tidewalk.run.settings import RunConfig
from tidewalk.run.study import Study, plan_study


def plan(config: RunConfig, *, quiet: bool, is_other: bool = False) -> Study:
    """Read the data of a configuration and plan its study for the device that it asks for.

    Args:
        config: the configuration.
        quiet: no line about what is being read.
        is_other: as for `read_markets`.

    Raises:
        ConfigError: there is no such device.
        TidewalkError: others as `read_markets` and `plan_study`.
    """
    prepare_device(config, quiet=quiet)
    tell(f"reading {config.data.data_dir}", quiet=quiet)
    return plan_study(config, read_markets(config, is_other=is_other), compose=mesh.compose_form())


def prepare_device(config: RunConfig, *, quiet: bool) -> None:
    """Choose the device, and where its compiled programs are kept, before jax first touches either.

    Raises:
        ConfigError: there is no such device, or jax is set up in another way than a study needs.
    """
    ambient.refuse_other()
    mesh.make_reproducible()
    mesh.choose_platform(config.output.device)
    compile_cache.enable(config.output.cache, functools.partial(tell, quiet=quiet))


def read_markets(config: RunConfig, *, is_other: bool = False) -> tuple[MarketData, ...]:
    """The market of every symbol of a configuration: a prepared `.npz`, or data files that are read and prepared.

    Args:
        config: the configuration.
        is_other: it was made for other data: hidden rolls are left out as it says where rolls are hidden, and where
            they are not that is no error.

    Raises:
        DataError, ConfigError: as the readers do, or settings of one contract for several, or a `.npz` that holds
            another symbol or was prepared for good.
    """
    if not all(config.symbols):
        raise ConfigError("--symbol is missing: name what to trade, such as ES.FUT.")
    refuse_shared_settings(config)
    if config.data.data_dir.suffix != ".npz":
        return _read_files(config, is_other=is_other)
    if len(config.symbols) > 1:
        raise ConfigError(
            f"--symbol {' --symbol '.join(config.symbols)}: {config.data.data_dir.name} holds the prepared market of "
            "one symbol. Point --data-dir at the folder of data files, which may hold several, or study one symbol."
        )
    return (_read_prepared(config),)


def read_market(config: RunConfig) -> MarketData:
    """The market of a configuration of one symbol, as `read_markets`."""
    if len(config.symbols) > 1:
        raise ConfigError(f"--symbol {' --symbol '.join(config.symbols)}: one symbol at a time is asked for here.")
    return read_markets(config)[0]


def _read_files(config: RunConfig, *, is_other: bool) -> tuple[MarketData, ...]:
    """Markets from the cache where they were prepared before from the same files, else from the files."""
    from tidewalk.market.cache import cached, open_cache
    from tidewalk.market.prepare import prepare_market

    quiet = config.output.quiet
    say = functools.partial(tell, quiet=quiet)
    cache = open_cache(config.output.cache, say)

    def read(data: DataConfig, series: SeriesConfig) -> MarketData:
        with reading(quiet=quiet) as progress:
            build = functools.partial(prepare_market, data, series, progress)
            return cached(cache, data, series, build, say)

    def read_as_far_as_asked(data: DataConfig) -> MarketData:
        try:
            return read(data, config.series)
        except NoRollWeeks as error:
            if not is_other:
                raise
            say(f"{error} Nothing is left out.")
        return read(data, dataclasses.replace(config.series, break_roll_weeks=False))

    return tuple(read_as_far_as_asked(config.data_of(symbol)) for symbol in config.symbols)


def _read_prepared(config: RunConfig) -> MarketData:
    path = config.data.data_dir
    refuse_preparing(config.data, config.series)
    market = load_market(path)
    info = market.info
    if config.data.symbol not in (info.symbol, info.root):
        hint = did_you_mean(config.data.symbol, [info.symbol])
        raise DataError(f"--symbol: {path.name} holds {info.symbol}, not {config.data.symbol}{hint}.")
    return market


def refuse_shared_settings(config: RunConfig) -> None:
    """Refuse what describes one contract where symbols of several roots would share it.

    Raises:
        ConfigError: names the flags and the roots.
    """
    roots = sorted({root_of(symbol) for symbol in config.symbols})
    series = config.series
    given = {"--tick": series.tick, "--multiplier": series.multiplier}
    flags = [f"{flag} {value:g}" for flag, value in given.items() if value is not None]
    flags += [f"--roll {series.roll}"] * series.roll.startswith("table:")
    if len(roots) > 1 and flags:
        raise ConfigError(
            f"{' and '.join(flags)}: would hold for every symbol, and {' and '.join(roots)} are different contracts. "
            "Leave it out (known contracts need none), or study one root at a time."
        )


def refuse_preparing(data: DataConfig, series: SeriesConfig) -> None:
    """Refuse settings of reading and preparing for a market that is prepared already, where they would change nothing.

    Raises:
        ConfigError: names them.
    """
    given = [
        (field.name, getattr(record, field.name), field.default)
        for record in (data, series)
        for field in dataclasses.fields(record)
    ]
    asked = [f"--{name.replace('_', '-')} {value}" for name, value, default in given if value != default]
    asked = [flag for flag in asked if not flag.startswith(("--data-dir", "--symbol"))]
    if asked:
        raise ConfigError(
            f"{', '.join(asked)}: {data.data_dir.name} is prepared already, so this changes nothing. Leave it out, or "
            "prepare the data files anew with it (`tidewalk inspect --save-market`)."
        )
