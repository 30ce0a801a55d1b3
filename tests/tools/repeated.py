"""Tests of contracts that say the same of every model of a framework.

A test class that derives from a contract names them in ``repeats``, and `make test-all` alone runs them there.
``tests/modelwrappers/frameworks`` runs them in the quick run, once for each framework: a model of its own there has
all that is easily got wrong.
"""

from __future__ import annotations

SAME_IN_A_FRAMEWORK = frozenset(
    {
        "test_the_training_graph_is_whole_or_its_absence_explained",
        "test_the_inference_graph_is_the_same_at_every_call",
        "test_intermediates_include_the_outputs_by_each_selector",
        "test_intermediates_are_what_their_selector_chooses",
        "test_intermediates_without_inputs_are_the_same_every_time",
        "test_operations_go_on_with_what_is_given",
        "test_choosing_nothing_is_an_error_of_one_line",
        "test_the_profile_of_an_inference_covers_its_graph",
        "test_the_profile_of_a_training_is_sound",
        "test_profiling_leaves_the_model_as_it_was",
        "test_the_seed_decides_a_training",
        "test_training_writes_curves_that_tensorboard_reads",
        "test_training_steps_are_the_same_every_time",
        "test_training_steps_on_one_batch_reduce_its_loss",
        "test_training_steps_end_with_their_samples",
        "test_training_steps_change_the_model",
        "test_an_interrupted_training_ends_with_the_interruption",
    }
)

RULES_OF_SESSIONS = frozenset(
    {
        "test_results_survive_the_session",
        "test_results_given_are_never_written_again",
        "test_results_do_not_lean_on_the_inputs",
        "test_two_sessions_share_nothing",
        "test_inputs_are_left_as_they_are",
        "test_inputs_may_be_read_only",
        "test_inputs_may_lie_scattered_in_memory",
        "test_running_needs_a_batch",
        "test_getting_needs_a_run",
        "test_closing_twice_does_no_harm",
        "test_closing_an_unused_session_does_no_harm",
        "test_a_closed_session_says_so",
        "test_stats_can_be_written_as_json",
    }
)
"""What the session of a runtime keeps that is tested elsewhere, too, when a wrapper opens the same session."""
