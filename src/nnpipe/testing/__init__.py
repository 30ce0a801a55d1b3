"""Contract suites for the interfaces: subclass one and define its fixture, and pytest checks your
component.

::

    from nnpipe.testing.runtime import RuntimeContract

    class TestMyRuntime(RuntimeContract):
        @pytest.fixture
        def runtime(self): return MyRuntime()
        ...

It requires ``pytest``.
"""
