"""Conversion of TensorFlow functions to TensorFlow Lite, in floats or integers, for CPUs, boards
and the Edge TPU.
"""

from __future__ import annotations

import subprocess
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from nnpipe.compilers._quantisation import (
    FloatKeepingCompiler,
    IntegerIOCompiler,
    find_touching_steps,
)
from nnpipe.compilers._requantisation import with_loadable_ranges
from nnpipe.compilers._tflite_ranges import (
    find_float_parts,
    list_tflite_steps,
    with_measured_ranges,
)
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.discoverable import Tool
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.keras import import_keras, suppress_copy_warning

_COMMAND = "edgetpu_compiler"
EDGETPU = Tool(
    "the Edge TPU compiler",
    (_COMMAND,),
    "see https://coral.ai/docs/edgetpu/compiler/ for how to install it",
)
_SECONDS = 1800


def compile_for_edgetpu(model: bytes) -> bytes:
    """Return an int8 TensorFlow Lite model compiled for the Edge TPU.

    Raises
    ------
    CompileError
        If the command fails; the message contains the end of its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "model.tflite")
        source.write_bytes(model)
        try:
            done = subprocess.run(
                [_COMMAND, "-o", folder, str(source)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileError(f"{_COMMAND} did not run: {error}") from None
        if done.returncode:
            said = " / ".join(done.stdout.split("\n")[-6:]).strip(" /")
            raise CompileError(
                f"{_COMMAND} ended with status {done.returncode}: {said or 'it said nothing'}"
            )
        result = Path(folder, "model_edgetpu.tflite")
        if not result.is_file():
            raise CompileError(f"{_COMMAND} wrote no {result.name}")
        return result.read_bytes()


_INTEGER = ("int8", "edgetpu")
_CLAIMS: dict[str, Claim] = {
    "default": "float",
    "float16": "float16",
    "dynamic": "int8-weights",
    "int8": "int8",
    "edgetpu": "int8",
}


Call = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""A function from TensorFlow tensors by name to TensorFlow tensors by name."""


class TFLiteConverterBase(IntegerIOCompiler, FloatKeepingCompiler):
    """Base of compilers that turn a model into a TensorFlow function, which TensorFlow's converter
    converts.

    In int8 models, those parts of attention that have no use for 256 equal
    steps stay in float32 (:mod:`nnpipe.compilers._tflite_ranges`), unless
    ``integer_only`` is set or the Edge TPU is the target.

    Authors write :meth:`_call`.
    """

    produces: ClassVar[str] = "tflite"
    suffix: ClassVar[str] = ".tflite"
    names_from_result: ClassVar[bool] = True
    lowers: ClassVar[str] = "weights of 1,024 numbers or more"

    target: Literal["default", "float16", "dynamic", "int8", "edgetpu"] = argument(
        "default",
        help="number formats: all float32 (default), weights float16 (float16), weights int8 "
        "(dynamic), int8 (int8), or all int8 and compiled for the Edge TPU (edgetpu)",
        aliases=("precision",),
    )
    fixed_batch: int | None = argument(
        None,
        help=(
            "fixed batch size, which some runtimes and devices need; 0 and the default leave it "
            "free"
        ),
        minimum=0,  # as runtimes declare it, so that the two are one option
    )

    integer_only: bool = argument(
        False,
        help="compute everything in int8, for devices without floating-point numbers; otherwise "
        "int8 leaves layer normalisations, the sums before them and the softmax of attention in "
        "float32, which is more accurate",
    )

    per_channel: bool = argument(
        True, help="use a separate scale for each output channel of a weight"
    )

    @abstractmethod
    def _call(self, artifact: Artifact) -> tuple[Call, list[Any]]:
        """Return the model as a function of its inputs by name, and the variables that the
        function uses.
        """

    def validate(self) -> None:
        """Check that integer inputs and outputs are only asked for with integer computation."""
        for flag, kind in (
            ("input", self.inference_input_type),
            ("output", self.inference_output_type),
        ):
            if kind != "float32" and self.target not in _INTEGER:
                raise ConfigError(
                    f"{type(self).__name__}: --inference-{flag}-type {kind} needs --precision int8 "
                    f"or edgetpu, not {self.target}"
                )
        if not self.per_channel and self.target not in _INTEGER:
            raise ConfigError(
                f"{type(self).__name__}: --no-per-channel needs --precision int8, not {self.target}"
            )
        self._check_keep_float(self.target == "int8", f"--precision int8, not {self.target}")
        if self.integer_only and self.keep_float:
            raise ConfigError(
                f"{type(self).__name__}: --integer-only computes everything in int8, without "
                f"--keep-float"
            )
        if self.integer_only and self.target not in _INTEGER:
            raise ConfigError(
                f"{type(self).__name__}: --integer-only needs --precision int8, not {self.target}"
            )

    def needs_calibration(self) -> bool:
        """Return whether activations are quantised to integers."""
        return self.target in _INTEGER

    def claims(self) -> tuple[Claim, ...]:
        """Return the number format of the target."""
        return (_CLAIMS[self.target],)

    def variant(self) -> str:
        """Return the target."""
        return "float32" if self.target == "default" else self.target

    def tools(self) -> tuple[Tool, ...]:
        """Return the Edge TPU compiler if it is the target."""
        return (EDGETPU,) if self.target == "edgetpu" else ()

    def target_name(self) -> str:
        """Return the device that the result is for."""
        return "edgetpu" if self.target == "edgetpu" else "cpu"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        with suppress_copy_warning(), warnings.catch_warnings():
            # TensorFlow's calibrator and flatbuffer tools use its deprecated interpreter.
            warnings.filterwarnings(
                "ignore", message=r"\s*Warning: tf\.lite\.Interpreter is deprecated"
            )
            converted = self._convert(artifact, calibration)
        converted = _rename_signature(converted, artifact.io)
        destination.write_bytes(
            compile_for_edgetpu(converted) if self.target == "edgetpu" else converted
        )
        return read_tflite(destination).io

    def _convert(self, artifact: Artifact, calibration: Calibration | None) -> bytes:
        batch = self.fixed_batch or (1 if self.target == "edgetpu" else None)
        samples = []
        if calibration is not None and self.target in _INTEGER:
            samples = list(_iter_samples(calibration, artifact.io, batch))
        tf, _ = import_keras()
        # A folder, because only a saved model keeps the names of inputs and outputs.
        with tempfile.TemporaryDirectory() as folder:
            _save(*self._call(artifact), artifact.io, batch, folder)
            converter = tf.lite.TFLiteConverter.from_saved_model(folder)
            if self.target != "default":
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            if self.target == "float16":
                converter.target_spec.supported_types = [tf.float16]
            if samples:
                converter.representative_dataset = lambda: iter(samples)
                converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
                # as TensorFlow's QuantizationDebugger does
                converter._experimental_calibrate_only = True
            try:
                content: bytes = converter.convert()
            except Exception as error:  # of classes that TensorFlow does not publish
                if batch is None and "element_shape to be static" in str(error):
                    raise CompileError(
                        "TensorFlow Lite has recurrent layers only for a fixed batch size; set "
                        "--fixed-batch 1"
                    ) from error
                raise
        return (
            self._quantize_calibrated(with_measured_ranges(content, samples))
            if samples
            else content
        )

    def _quantize_calibrated(self, calibrated: bytes) -> bytes:
        from tensorflow import as_dtype
        from tensorflow.lite.python.convert import mlir_quantize

        floats = (
            None
            if self.integer_only or self.target == "edgetpu"
            else self._find_float_tensors(calibrated)
        )
        content: bytes = mlir_quantize(
            with_loadable_ranges(calibrated, floats or ()),
            disable_per_channel=not self.per_channel,
            denylisted_nodes=floats,
            input_data_type=as_dtype(self.inference_input_type),
            output_data_type=as_dtype(self.inference_output_type),
        )
        return content

    def _find_float_tensors(self, calibrated: bytes) -> list[str]:
        """Return the results of the operators that stay in floats."""
        found = find_float_parts(calibrated)
        if self.keep_float:
            steps = list_tflite_steps(calibrated)
            found += [
                output
                for step in find_touching_steps(self._resolve_keep_float(steps), steps)
                for output in step.outputs
            ]
        return sorted(set(found))


def _save(call: Call, variables: list[Any], io: IOSpec, batch: int | None, folder: str) -> None:
    """Write a function as a saved model whose signature names inputs and outputs by their
    position.
    """
    import tensorflow as tf

    def serve(**tensors: Any) -> dict[str, Any]:
        results = call(
            {spec.name: tensors[f"input_{place}"] for place, spec in enumerate(io.inputs)}
        )
        return {f"output_{place}": results[spec.name] for place, spec in enumerate(io.outputs)}

    signature = {
        f"input_{place}": tf.TensorSpec(
            (spec.shape[0] if batch is None else batch, *spec.shape[1:]),
            spec.dtype,
            name=f"input_{place}",
        )
        for place, spec in enumerate(io.inputs)
    }
    module = tf.Module()
    # Only attributes of the module are saved with their values.
    module.variables_of_the_model = variables
    function = tf.function(serve, autograph=False).get_concrete_function(**signature)
    tf.saved_model.save(module, folder, signatures={"serving_default": function})


def _iter_samples(
    calibration: Calibration, io: IOSpec, batch: int | None
) -> Iterator[dict[str, np.ndarray]]:
    for sample in calibration():
        yield {
            f"input_{place}": np.repeat(sample[spec.name], batch or 1, axis=0)
            for place, spec in enumerate(io.inputs)
        }


def _rename_signature(content: bytes, io: IOSpec) -> bytes:
    """Return the model with the names of inputs and outputs in its signature; the converter
    rejects some names.
    """
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    for signature in model.signatureDefs:
        for entries, specs in ((signature.inputs, io.inputs), (signature.outputs, io.outputs)):
            for entry in entries:
                entry.name = specs[int(entry.name.rpartition(b"_")[2])].name
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))
