"""``init``, ``devices`` and ``actors``: a new mesh and who is there."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mnemes_lab.cli.base import Folder, Formatted, Output, app, examples, opened
from mnemes_lab.cli.output import Target, note, say
from mnemes_lab.errors import ConflictError, DeviceNotFoundError
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.store import control
from mnemes_lab.text.encode import default_encoder

_ONCE = "The credential is shown this once; keep it now."


class DeviceAction(StrEnum):
    """What to do with a device."""

    LIST = "list"
    ADD = "add"
    HEARTBEAT = "heartbeat"
    QUARANTINE = "quarantine"
    REACTIVATE = "reactivate"
    REVOKE = "revoke"
    ROTATE = "rotate"


class ActorAction(StrEnum):
    """What to do with an actor."""

    LIST = "list"
    ADD = "add"


@app.command(
    "init",
    epilog=examples(
        "mnemes-lab init my-mesh",
        "mnemes-lab init experiment --seed 7 --encoder hash",
        "mnemes-lab init my-mesh --bootstrap laptop",
    ),
)
def init_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to make.", show_default=False)
    ],
    seed: Annotated[
        int | None,
        typer.Option(help="Make ids, times and keys repeatable; for experiments only."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="hash, hash:256, minilm, or the folder of a sentence model."),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Make the first device and its operator too."),
    ] = None,
) -> None:
    """Make a mesh, or say what is there already."""
    was_there = (folder / "pooled.db").exists()
    if encoder is None and not was_there and (notice := default_encoder()[1]):
        note(notice)
    with Mesh.open(folder, seed=seed, encoder=encoder) as mesh:
        seeded = "" if mesh.store.seed is None else f", seed {mesh.store.seed}"
        made = "was there already" if was_there else "made"
        say(f"mesh {folder} {made}: encoder {mesh.encoder.name}{seeded}")
        if bootstrap is not None:
            first = mesh.bootstrap(bootstrap)
            say(f"device {bootstrap}: {first.device_id}")
            say(f"operator: {first.actor_id}")
            _reveal(first.credential)


def _reveal(credential: control.Credential) -> None:
    say(f"credential: {credential.reveal()}")
    note(_ONCE)


@app.command(
    "devices",
    epilog=examples(
        "mnemes-lab devices my-mesh",
        "mnemes-lab devices my-mesh add van --platform linux",
        "mnemes-lab devices my-mesh quarantine van",
        "mnemes-lab devices my-mesh --format json",
    ),
)
def devices_command(
    folder: Folder,
    action: Annotated[
        DeviceAction, typer.Argument(help="What to do; revoke is final.")
    ] = DeviceAction.LIST,
    label: Annotated[
        str | None, typer.Argument(metavar="LABEL", help="The device, by label or id.")
    ] = None,
    platform: Annotated[str, typer.Option(help="Of an added device.")] = "",
    hostname: Annotated[str, typer.Option(help="Of an added device.")] = "",
    credential: Annotated[
        bool, typer.Option("--credential", help="Give an added device a credential, shown once.")
    ] = False,
    format: Formatted = None,
    output: Output = None,
) -> None:
    """List the devices of a mesh, add one, or change what one may do."""
    if action is DeviceAction.LIST:
        target = Target.of(format, output)
        with opened(folder, read_only=True) as mesh:
            frame = mesh.devices()
            seen = frame.join(mesh.catalogue().select("device_id", "facts"), on="device_id")
            columns = ["label", "status", "platform", "facts", "last_seen_at", "device_id"]
            target.write(frame, shown=seen.select(columns).sort("label", "device_id"))
        return
    named = _needed(label, "LABEL", action)
    with opened(folder) as mesh:
        if action is DeviceAction.ADD:
            _add_device(mesh, named, platform, hostname, credential)
            return
        device = control.find_device(mesh.store, named)["device_id"]
        if action is DeviceAction.ROTATE:
            _reveal(control.rotate(mesh.store, device))
        elif action is DeviceAction.HEARTBEAT:
            control.heartbeat(mesh.store, device)
        else:
            control.set_status(mesh.store, device, _BECOMES[action])
        say(f"device {named}: {control.find_device(mesh.store, device)['status']}")


_BECOMES = {
    DeviceAction.QUARANTINE: "quarantined",
    DeviceAction.REACTIVATE: "active",
    DeviceAction.REVOKE: "revoked",
}


def _needed(name: str | None, what: str, action: StrEnum) -> str:
    if name is None:
        raise typer.BadParameter(f"{action} needs {what}")
    return name


def _add_device(mesh: Mesh, label: str, platform: str, hostname: str, with_key: bool) -> None:
    try:
        control.find_device(mesh.store, label)
    except DeviceNotFoundError:
        pass
    else:
        raise ConflictError("There is a device with this label.", found=label)
    device_id, credential = control.register_device(
        mesh.store, label, platform=platform, hostname=hostname, with_credential=with_key
    )
    say(f"device {label}: {device_id}")
    if credential is not None:
        _reveal(credential)


@app.command(
    "actors",
    epilog=examples(
        "mnemes-lab actors my-mesh",
        "mnemes-lab actors my-mesh add planner --device van",
        "mnemes-lab actors my-mesh add Renée --device van --kind human",
    ),
)
def actors_command(
    folder: Folder,
    action: Annotated[ActorAction, typer.Argument(help="What to do.")] = ActorAction.LIST,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Of the new actor.")] = None,
    device: Annotated[
        str | None, typer.Option(help="The device it acts through, by label or id.")
    ] = None,
    kind: Annotated[str, typer.Option(help="human, agent, service or any other.")] = "agent",
    profile: Annotated[str, typer.Option(help="agent or operator.")] = "agent",
    granted_by: Annotated[
        str | None, typer.Option(metavar="ACTOR_ID", help="The operator who grants the profile.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model behind it.")] = None,
    format: Formatted = None,
    output: Output = None,
) -> None:
    """List who acts through which device, or add an actor."""
    if action is ActorAction.LIST:
        target = Target.of(format, output)
        with opened(folder, read_only=True) as mesh:
            frame = mesh.actors()
            labels = mesh.devices().select("device_id", device="label")
            columns = ["name", "kind", "tool_profile", "device", "provider_model", "actor_id"]
            seen = frame.join(labels, on="device_id", how="left", maintain_order="left")
            target.write(frame, shown=seen.select(columns))
        return
    new = _needed(name, "NAME", action)
    if device is None:
        raise typer.BadParameter("add needs --device")
    with opened(folder) as mesh:
        actor_id = control.register_actor(
            mesh.store,
            device,
            kind,
            name=new,
            tool_profile=profile,
            provider_model=model,
            granted_by=granted_by,
        )
        say(f"actor {new}: {actor_id}")
