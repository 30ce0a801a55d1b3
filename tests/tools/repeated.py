"""Tests of contracts that say the same of every model of a framework.

A test class that derives from a contract names them in ``repeats``, and `make test-all` alone runs
them there. ``tests/modelwrappers/frameworks`` runs them in the quick run, once for each framework:
a model of its own there has all that is easily got wrong.
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

SAME_FOR_ANY_LAYERS = frozenset(
    {
        "test_two_models_of_a_wrapper_share_no_weights",
        "test_a_closed_model_lets_its_network_go_and_says_so",
        "test_equal_arguments_make_equal_models",
        "test_a_session_runs_the_model_as_it_is_now",
        "test_inference_steps_give_the_outputs",
        "test_weights_have_names_that_stay",
        "test_weights_can_be_had_by_name",
        "test_weights_given_are_copies",
        "test_asking_for_an_unknown_weight_names_it",
        "test_weights_set_are_the_weights_used",
        "test_weights_set_are_copied",
        "test_setting_some_weights_leaves_the_rest_alone",
        "test_an_unknown_weight_is_refused_before_anything_changes",
        "test_a_wrong_shape_is_refused_before_anything_changes",
    }
)
"""What a wrapper that only says its layers leaves to the wrapper of its framework, which is
tested by itself.
"""

RULES_OF_SESSIONS = frozenset(
    {
        "test_results_survive_the_session",
        "test_results_given_are_never_written_again",
        "test_results_do_not_lean_on_the_inputs",
        "test_two_sessions_share_nothing",
        "test_inputs_are_left_as_they_are",
        "test_inputs_may_be_read_only",
        "test_inputs_may_lie_scattered_in_memory",
        "test_infer_is_put_run_get",
        "test_equal_inputs_give_equal_results",
        "test_other_inputs_give_other_results",
        "test_an_earlier_batch_leaves_no_trace",
        "test_inputs_are_bound_by_name",
        "test_a_mismatch_is_refused_in_one_line_and_does_no_harm",
        "test_a_wrong_length_of_a_fixed_axis_is_refused",
        "test_running_needs_a_batch",
        "test_getting_needs_a_run",
        "test_closing_twice_does_no_harm",
        "test_closing_an_unused_session_does_no_harm",
        "test_a_closed_session_says_so",
        "test_stats_can_be_written_as_json",
    }
)
"""What the session of a runtime keeps that is tested elsewhere, too, when a wrapper opens the
same session.
"""
