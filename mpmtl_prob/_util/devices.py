"""Which device computes what, where JAX sees several: one mesh, with the axis "tasks"; chains take turns.

What is computed task by task in NumPy (messages, owners' posteriors) stays on the processor, where every task's numbers are
its own to the last bit; :class:`mpmtl_prob.TaskShards` spreads it over processes. With one device nothing is moved.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def mesh() -> Mesh:
    """All devices that this process can use, along "tasks"."""
    return Mesh(np.array(jax.local_devices()), ("tasks",))


def padding(num_tasks: int) -> int:
    """How many tasks are missing until every device has as many."""
    return -num_tasks % len(jax.local_devices())


def by_task(leaf: Any, axis: int = 0) -> Any:
    """An array with its axis of tasks spread over the mesh; copies of the last task fill it up."""
    devices = mesh()
    if devices.size == 1:
        return leaf
    leaf = np.asarray(leaf)
    leaf = np.pad(leaf, [(0, padding(leaf.shape[axis]) * (axis == i)) for i in range(leaf.ndim)], mode="edge")
    return jax.device_put(leaf, NamedSharding(devices, PartitionSpec(*[None] * axis, "tasks")))


def for_chain(chain: int, tree: Any) -> Any:
    """A pytree on the device of one chain: chains take the devices in turn."""
    devices = jax.local_devices()
    return tree if len(devices) == 1 else jax.device_put(tree, devices[chain % len(devices)])


def for_chains[T](number: int, tree: T) -> list[T]:
    """A pytree on the device of each of so many chains, once a device; nobody may write to its arrays."""
    devices = jax.local_devices()
    placed = (
        [jax.device_put(tree, device) for device in devices[:number]] if len(devices) > 1 else [without_copies(tree)]
    )
    return [placed[i % len(devices)] for i in range(number)]


def without_copies[T](tree: T) -> T:
    """A pytree of JAX's arrays that on a processor are where NumPy has them, if they are aligned; nobody may write to these.

    ``jnp.asarray`` copies them.
    """
    place = lambda leaf: jax.device_put(leaf) if isinstance(leaf, np.ndarray) else jnp.asarray(leaf)
    found: T = jax.tree.map(place, tree)
    return found
