"""Contract suites for the interfaces: subclass one, give a fixture, and pytest checks your component.

::

    from nnpipe.testing.runtime import RuntimeContract

    class TestMyRuntime(RuntimeContract):
        @pytest.fixture
        def runtime(self): return MyRuntime()
        ...

Needs ``pytest``.
"""
