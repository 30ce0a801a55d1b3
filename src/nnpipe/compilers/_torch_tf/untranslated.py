"""Operators of PyTorch that certainly have no translation, by which a program is refused without loading it."""

from __future__ import annotations

# Neither in the table of translations nor decomposed by PyTorch into operators that are.  The list is not complete.
_FOURIER = (
    "_fft_c2c _fft_c2r _fft_r2c fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_irfft fft_irfft2 fft_irfftn "
    "fft_rfft fft_rfft2 fft_rfftn"
)
_SIZED_BY_VALUES = "masked_select nonzero _unique2 unique_consecutive unique_dim"
_OTHERS = (
    "adaptive_max_pool3d bincount bucketize complex cummax cummin cumprod digamma erfinv histc index_reduce kthvalue "
    "lgamma linalg_cholesky linalg_cholesky_ex linalg_eig linalg_householder_product "
    "linalg_inv linalg_inv_ex linalg_lu_factor_ex linalg_qr "
    "logcumsumexp masked_scatter median mode multinomial nanmedian polygamma scatter_add scatter_reduce searchsorted "
    "view_as_complex view_as_real"
)

UNTRANSLATED = frozenset(f"{_FOURIER} {_SIZED_BY_VALUES} {_OTHERS}".split())
"""Their names without overloads."""
