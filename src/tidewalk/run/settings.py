"""The whole configuration of a study: composed from the parts' own records, read from and written to TOML."""

import dataclasses
import hashlib
import json
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, Literal

import tomli_w

from tidewalk.agents.dqn import DQNConfig
from tidewalk.core.errors import ConfigError, did_you_mean
from tidewalk.data.load import DataConfig
from tidewalk.market.prepare import SeriesConfig
from tidewalk.market.windows import WindowConfig
from tidewalk.trading.costs import CostConfig
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import LimitConfig
from tidewalk.train.population import TrainConfig


@dataclasses.dataclass(frozen=True)
class OutputConfig:
    """Where and how a study runs and reports."""

    out: Path | None = None
    """Run folder; default runs/<time>-<model>-<symbol>."""
    device: Literal["cpu", "gpu"] | None = None
    """Accelerator; default: the best that jax finds."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """Matrix products on accelerators; training and evaluation use the same."""
    learner: Literal["auto", "xla", "kernel"] = "auto"
    """What runs the steps of an epoch; auto: the kernel on an NVIDIA GPU where it fits, XLA's program elsewhere."""
    profile: bool = False
    """Keep a trace of the second epoch (and the third, if short; the first where it is the only one) in the run folder,
    and time each phase by itself; no result changes."""
    checkpoint_every: int | None = None
    """Epochs between checkpoints. Left out: as often as costs a twentieth of the time at most. One follows the last
    epoch, and any after which a run is stopped, in either case."""
    overwrite: bool = False
    """Replace the run that --out holds."""
    cache: str | None = None
    """Folder in which prepared markets and compiled programs are kept and found again by their content, or off. Left
    out: TIDEWALK_CACHE in the environment, else the user's own cache folder (there only markets that take more than a
    second to prepare)."""
    quiet: bool = False
    """Print the result only."""
    json: bool = False
    """Print JSON on standard output in place of text: summary.json, or windows.json."""

    def __post_init__(self) -> None:
        """Refuse an interval that never comes."""
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise ConfigError(f"--checkpoint-every is {self.checkpoint_every}; it must be 1 or more.")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """A walk-forward study."""

    data: DataConfig
    model: Literal["dqn"] = "dqn"
    """Algorithm: dqn is DQN with n-step targets, by default double and with a duelling head."""
    series: SeriesConfig = dataclasses.field(default_factory=SeriesConfig)
    windows: WindowConfig = dataclasses.field(default_factory=WindowConfig)
    env: EnvConfig = dataclasses.field(default_factory=EnvConfig)
    costs: CostConfig = dataclasses.field(default_factory=CostConfig)
    limits: LimitConfig = dataclasses.field(default_factory=LimitConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    dqn: DQNConfig = dataclasses.field(default_factory=DQNConfig)
    output: OutputConfig = dataclasses.field(default_factory=OutputConfig)

    def __post_init__(self) -> None:
        """Refuse symbols that are empty or named twice, and a roll fee that nothing would pay."""
        twice = [symbol for symbol in self.symbols if self.symbols.count(symbol) > 1]
        if twice:
            raise ConfigError(f"--symbol {twice[0]} is given twice; each symbol is one part of a study. Name it once.")
        if len(self.symbols) > 1 and not all(self.symbols):
            raise ConfigError(f"--symbol {self.data.symbol!r}: a symbol between the commas is empty. Leave it out.")
        if self.costs.roll_fee_usd is not None and self.env.roll_as != "spread":
            raise ConfigError(
                f"--roll-fee-usd {self.costs.roll_fee_usd:g} is the fee of a calendar spread, and --roll-as is "
                f"{self.env.roll_as}: a roll pays two sides. Use --roll-as spread, or leave the fee out."
            )

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the study: one, or several with commas between them."""
        return tuple(symbol.strip() for symbol in self.data.symbol.split(","))

    def data_of(self, symbol: str) -> DataConfig:
        """What to read for one of the symbols."""
        return dataclasses.replace(self.data, symbol=symbol)

    @property
    def purge_bars(self) -> int:
        """Bars purged at the end of train and validation."""
        return self.dqn.n_step + 1 if self.windows.purge_bars is None else self.windows.purge_bars


def to_toml(config: RunConfig) -> str:
    """The configuration as TOML; None is left out, since TOML has no null and every None is a default."""
    values = _plain(config)
    if len(config.symbols) > 1:
        values["data"]["symbol"] = list(config.symbols)
    return tomli_w.dumps(values)


def from_toml(text: str, name: str = "run.toml", *, data: dict[str, str] | None = None) -> RunConfig:
    """The configuration that `to_toml` wrote, or that a person wrote by hand (missing keys keep their defaults).

    Args:
        text: TOML.
        name: where it comes from, for errors.
        data: values that win over those of the file's table `data`, which holds all keys without a default.

    Raises:
        ConfigError: not TOML, an unknown key (with the nearest valid one), a value of the wrong type, or one that a
            record refuses.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}.") from error
    table = values.setdefault("data", {})
    if isinstance(table, dict):
        table |= data or {}
        symbols = table.get("symbol")
        if isinstance(symbols, list) and symbols and all(isinstance(symbol, str) for symbol in symbols):
            table["symbol"] = ",".join(symbols)
    return _build(RunConfig, values, name)


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """The configuration with its files named so that it means the same from any folder."""
    data_dir, (rule, colon, table) = config.data.data_dir.absolute(), config.series.roll.partition(":")
    roll = f"{rule}:{Path(table).absolute()}" if rule == "table" and table else f"{rule}{colon}{table}"
    cache = config.output.cache
    if cache not in (None, "off"):
        cache = str(Path(cache).expanduser().absolute())
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, data_dir=data_dir),
        series=dataclasses.replace(config.series, roll=roll),
        output=dataclasses.replace(config.output, cache=cache),
    )


def result_settings(config: RunConfig) -> dict[str, Any]:
    """Every setting that can change a result, by dotted name: not where files lie, nor what is printed."""
    values = _plain(config)
    values["output"] = {"precision": config.output.precision}
    values["data"].pop("data_dir")
    if config.series.roll.startswith("table:"):
        values["series"]["roll"] = "table"  # the dates in the file show in the bars
    groups = {name: group if isinstance(group, dict) else {"": group} for name, group in values.items()}
    return {f"{name}.{key}".strip("."): value for name, group in groups.items() for key, value in group.items()}


def config_hash(config: RunConfig) -> str:
    """SHA-256 of every setting that can change a result."""
    return hashlib.sha256(json.dumps(result_settings(config), sort_keys=True).encode()).hexdigest()


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What differs between two `result_settings`, as `train.seed 0 -> 1, dqn.lr 0.0005 -> 0.001`."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {before.get(name, 'not set')} -> {after.get(name, 'not set')}" for name in names)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        items = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {name: _plain(item) for name, item in items.items() if item is not None}
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _build(record: type, values: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(record)
    fields = {f.name: f for f in dataclasses.fields(record)}
    for key in values:
        if key not in fields:
            inside = [name for name in fields if key in getattr(hints[name], "__dataclass_fields__", ())]
            hint = f" (it belongs in [{inside[0]}])" if inside else did_you_mean(key, fields)
            raise ConfigError(f"{where}: unknown key {key!r}{hint}. Known keys: {', '.join(fields)}.")
    for name, field in fields.items():
        has_default = (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
        if name not in values and not has_default:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{where}: {name!r} is missing; give it there or as {flag}.")
    return record(**{key: _convert(hints[key], value, f"{where}: {key}") for key, value in values.items()})


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        hint = next(arg for arg in typing.get_args(hint) if arg is not types.NoneType)
        origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _build(typing.cast(type, hint), value, where)
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            near = did_you_mean(str(value), map(str, choices))
            raise ConfigError(f"{where} is {value!r}{near}; it must be one of {', '.join(map(str, choices))}.")
        return value
    if origin is tuple and isinstance(value, list):
        item = typing.get_args(hint)[0]
        return tuple(_convert(item, part, where) for part in value)
    if hint is Path and isinstance(value, str) and value:
        return Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    kind = "a table" if dataclasses.is_dataclass(hint) else f"of type {getattr(hint, '__name__', hint)}"
    raise ConfigError(f"{where} is {value!r} ({type(value).__name__}); it must be {kind}.")
