"""Small networks of real architectures, each trained briefly, for ``examples/zoo.yaml``.

Every function of these modules returns a trained model, the samples to judge
it on, and samples for quantisers to observe.  Networks keep the structure that
they have in full size, with fewer and narrower layers.
"""
