"""Kernels that the kernels of several operators need."""

from __future__ import annotations

from nnpipe.compilers._c_code.step import CKernel

RAISED = CKernel("raised.c")
RESCALE = CKernel("rescale.c")
RESCALE64 = CKernel("rescale64.c")
RESCALE_ONCE = CKernel("rescale_once.c")
CLAMP = CKernel("clamp_f.c")
CLAMP_Q = CKernel("clamp_q.c")
WINDOW = CKernel("window.c")
ZEROS = CKernel("quantised.c")
DSP = CKernel("dsp.c")
REQUANTISE = CKernel("requantise.c")
INSIDE = CKernel("inside.c")
MVE = CKernel("mve.c")
