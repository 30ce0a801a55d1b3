"""Small networks of real architectures, each trained briefly, for ``examples/zoo/matrix.py``.

Every function of these modules returns a trained model, the samples to judge
it on, samples for quantisers to observe, and how well it does.  Networks keep the structure that
they have in full size, with fewer and narrower layers.
"""
