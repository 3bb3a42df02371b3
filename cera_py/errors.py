"""Every error a user can cause, in one family: catch `CeraError` for all of them.

A message says what was wrong, where (file, key, tensor), and what to do about it, in one line.
"""


class CeraError(Exception):
    """The base of every error that cera_py raises on purpose."""


class ModelFileError(CeraError):
    """A model file is damaged, truncated, or not what it says it is; the message names the key or tensor."""


class UnsupportedModelError(CeraError):
    """The file is sound, but its architecture, quant type or tokenizer is not one we have; the message lists those."""


class DeviceError(CeraError):
    """No such adapter, no Vulkan loader, a lost device, or a limit of the adapter that the model exceeds."""


class OutOfMemoryError(DeviceError):
    """The GPU (or the machine) could not hold the weights, the cache, or a buffer of a step."""


class ContextFullError(CeraError):
    """The prompt, or the prompt and what was asked for, does not fit the context length."""


class InvalidArgumentError(CeraError, ValueError):
    """An argument outside its range: an empty prompt, a negative temperature, a context beyond the model's."""


class DownloadError(CeraError):
    """A model could not be fetched, or what arrived is not what was expected."""


class ModelClosedError(CeraError):
    """The model was closed before."""


class SupersededError(CeraError):
    """A generation cannot go on: another call has taken the model's cache over."""
