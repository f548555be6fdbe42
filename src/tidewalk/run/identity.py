"""What makes a run the run it is: its settings, its bars, and all else that a study trains on."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidewalk.core.errors import StoreError
from tidewalk.run.settings import RunConfig, changes, config_hash, from_toml, result_settings, with_absolute_paths
from tidewalk.run.study import Study, data_fingerprint, market_hash
from tidewalk.store import layout
from tidewalk.store.layout import RunFolder


def stored_config(run: RunFolder, data_dir: Path | None) -> RunConfig:
    """The configuration that a run keeps; `data_dir` says where its data lie now, if they were moved."""
    config = from_toml(layout.read_bytes(run.config).decode(errors="replace"), str(run.config))
    if data_dir is not None:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, data_dir=data_dir))
    return with_absolute_paths(config)


def identity(study: Study) -> dict[str, str]:
    """What has to be the same for a run to go on, or to be traded again."""
    return {
        "config_hash": config_hash(study.config),
        "data_fingerprint": data_fingerprint(study),
        "market_hash": market_hash(study),
    }


def refuse_other_settings(run: RunFolder, config: RunConfig, *records: Mapping[str, Any]) -> None:
    """Refuse settings that are not those of a run, and say what differs.

    Args:
        run: the run folder.
        config: the settings.
        records: where the run kept its identity: its manifest, a checkpoint's description.

    Raises:
        StoreError: the hash of the settings is not the one kept.
    """
    if {str(record["config_hash"]) for record in records if "config_hash" in record} <= {config_hash(config)}:
        return
    before = next((record["settings"] for record in records if "settings" in record), None)
    change = changes(before, result_settings(config)) if before else ""
    raise StoreError(
        f"{run.config}: the settings are not those of the run{f' ({change})' if change else ''}. Undo the "
        f"change, or start a new run with `tidewalk train --config {run.config}`."
    )


def refuse_other_data(study: Study, remedy: str, *records: Mapping[str, Any]) -> None:
    """Refuse data that are not those of a run, and say in what they differ.

    Args:
        study: the study as planned on the data at hand.
        remedy: what the user can do beside bringing the data back, as the end of a sentence.
        records: as for `refuse_other_settings`.

    Raises:
        StoreError: the fingerprint of the bars or the hash of the market is not the one kept.
    """
    now = {"data_fingerprint": data_fingerprint(study), "market_hash": market_hash(study)}
    for name, value in now.items():
        before = {str(record[name]) for record in records if name in record}
        if before <= {value}:
            continue
        what = "bars" if name == "data_fingerprint" else "roll table, the feature code or the version of a package"
        raise StoreError(
            f"{study.config.data.data_dir}: not the data of the run: other {what} ({name} {value[:12]}, was "
            f"{' and '.join(sorted(text[:12] for text in before))}). Bring them back, say with --data-dir where they "
            f"lie now, or {remedy}."
        )
