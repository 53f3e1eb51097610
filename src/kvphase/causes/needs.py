"""What tests need of an endpoint, each said in a sentence where it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.catalogue import message

if TYPE_CHECKING:
    from kvphase.catalogue import Message
    from kvphase.causes.base import Need
    from kvphase.causes.scene import Scene
    from kvphase.types import Arm


def cold(scene: Scene) -> Message | None:
    """A cache that one request can ignore."""
    return None if scene.limits.cold else message("diagnose.needs.cold")


def control(arm: Arm) -> Need:
    """A way of asking that not every endpoint has."""

    def need(scene: Scene) -> Message | None:
        held = arm in scene.limits.controls
        return None if held else message(f"diagnose.needs.{arm.value}")

    return need


def template(scene: Scene) -> Message | None:
    """A chat template."""
    return None if scene.template is not None else message("diagnose.needs.template")


def talk(scene: Scene) -> Message | None:
    """A model that follows requests in chat; toys do not."""
    return None if scene.talk is not None else message("diagnose.needs.talk")


def against(scene: Scene) -> Message | None:
    """Answers of something else to compare with."""
    return None if scene.against else message("diagnose.needs.against")


__all__ = ["against", "cold", "control", "talk", "template"]
