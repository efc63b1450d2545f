"""Placement of arrays on JAX's devices: one mesh with the axis "tasks" for tasks, and devices in turn for chains.

Computations in NumPy for one task at a time (messages, owners' posteriors) stay on the CPU, where every task's numbers
depend on that task alone, to the last bit; :class:`mpmtl_prob.TaskShards` spreads them over processes. With one device
nothing is moved.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def mesh() -> Mesh:
    """Return the mesh of all devices that this process can use, along the axis "tasks"."""
    return Mesh(np.array(jax.local_devices()), ("tasks",))


def padding(num_tasks: int) -> int:
    """Return the number of tasks to add so that every device has equally many."""
    return -num_tasks % len(jax.local_devices())


def by_task(leaf: Any, axis: int = 0) -> Any:
    """Spread an array's axis of tasks over the mesh; copies of the last task fill it up."""
    devices = mesh()
    if devices.size == 1:
        return leaf
    leaf = np.asarray(leaf)
    leaf = np.pad(leaf, [(0, padding(leaf.shape[axis]) * (axis == i)) for i in range(leaf.ndim)], mode="edge")
    return jax.device_put(leaf, NamedSharding(devices, PartitionSpec(*[None] * axis, "tasks")))


def for_chain(chain: int, tree: Any) -> Any:
    """Put a pytree on the device of one chain. Chains take the devices in turn."""
    devices = jax.local_devices()
    return tree if len(devices) == 1 else jax.device_put(tree, devices[chain % len(devices)])


def for_chains[T](number: int, tree: T) -> list[T]:
    """Return a pytree for each of several chains, on that chain's device.

    Chains on one device share one copy, so nobody may write to its arrays.
    """
    devices = jax.local_devices()
    placed = (
        [jax.device_put(tree, device) for device in devices[:number]] if len(devices) > 1 else [without_copies(tree)]
    )
    return [placed[i % len(devices)] for i in range(number)]


def without_copies[T](tree: T) -> T:
    """Return a pytree of JAX arrays that share the memory of aligned NumPy arrays on a CPU; nobody may write to these.

    ``jnp.asarray`` would copy them.
    """
    place = lambda leaf: jax.device_put(leaf) if isinstance(leaf, np.ndarray) else jnp.asarray(leaf)
    placed: T = jax.tree.map(place, tree)
    return placed
