"""Plants faults of one line, one at a time, and says whether the tests see them.

    python tests/faults.py                   # in each room of the package
    python tests/faults.py --only forgetron  # faults whose file or text has this word

The quick tests of the fault's room are run in order until one fails, and all of them if
none does. A fault that no test sees is a hole in the tests; one that only slow tests
see is a subject that the quick ones lack. Each fault is planted in a copy of the
package, in `--processes` side by side (two if not given).

Libraries that mutate every operator and number (mutmut, cosmic-ray) would plant 10,000
here, and compile the programs of a room for each; few of those are what people get
wrong, such as a weight, an option or an order of columns that is forgotten.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from multiprocessing.pool import ThreadPool
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]

# The tests of a room, those that tell most first.
ROOMS = {
    "online": ("reference", "contract", "states", "theory", "measured", "blocks"),
    "tracking": ("tracking", "mixture", "reference"),
    "maintenance": ("reference", "contract", "measured", "theory"),
    "kernels": ("kernels", "reference"),
    "solvers": ("batch", "solver_weights", "theory", "batch_budget_svm"),
    "sharing": ("solver_sharing", "own_solver", "solve", "solver_errors"),
    "linear": ("linear_mpu", "linear_rivals", "solver_weights"),
    "refit": ("refit", "metric", "one_class", "compress", "probabilities"),
    "metric": ("metric", "targets", "encoded_estimators"),
    "encoding": ("encoding", "encoded_models", "encoded_estimators", "categories"),
    "models": ("models", "compress", "kernels"),
    "stream": ("stream", "readers", "bad_data", "checkpoints"),
    "files": ("persist", "model_files"),
    "exporting": ("export",),
    "forms": ("metric", "encoded_estimators", "categories", "estimators"),
    "estimators": ("estimators", "targets", "learners"),
    "probabilities": ("probabilities", "estimators"),
    "river": ("river",),
    "tables": ("encoding", "values", "stream", "estimators"),
    "readers": ("readers", "bad_data"),
    "one_class": ("one_class", "estimators"),
    "cli": ("cli",),
    "training": ("training", "cli"),
    "values": ("values", "own_learner", "errors", "counter"),
    "shared": ("counter", "errors", "states", "datasets"),
}


class Fault(NamedTuple):
    """A line of a file, what it becomes, and the room whose tests should see it."""

    room: str
    file: str
    line: str
    fault: str


FAULTS = (
    # Update rules.
    Fault("values", "online/learner.py", "return self.start(state.empty(), 0, None)", "return self.start(state, 0, None)"),
    Fault("values", "_checks.py", 'field.metadata.get("check") or finite', "None"),
    Fault("values", "online/changes.py", "if wanted != got or has_strategy", "if has_strategy"),
    Fault("values", "online/engine.py", "if any(new is not old for new, old in zip(*parts, strict=True)):", "if None in parts:"),
    Fault("values", "online/learner.py", "variance = self.variance(state, one[0])", "variance = 0 * self.variance(state, one[0])"),
    Fault("values", "online/learners/arow.py", "selves - jnp.sum(known * p, axis=1), 0", "selves + jnp.sum(known * p, axis=1), 0"),
    Fault("values", "_record.py", "for base in reversed(kind.__mro__):", "for base in (kind,):"),
    Fault("estimators", "estimators/base.py", "own[name] = replace_params(part, changes)", "own[name] = part"),
    Fault("files", "saving/names.py", "parts = defaults_of(kind) | dict(parts)", "parts = dict(parts)"),
    Fault("online", "online/learners/perceptron.py", "self.insert(state, steps * direction, candidate)", "self.insert(state, direction, candidate)"),
    Fault("tracking", "online/mixture.py", "count * jnp.minimum(square / known, MOST)", "jnp.minimum(square / known, MOST)"),
    Fault("tracking", "online/mixture.py", "jnp.exp(2 * log_quantile) * variance", "jnp.exp(log_quantile) * variance"),
    Fault("tracking", "online/mixture.py", "jnp.exp(self.memory.log_quantile) * (", "1.0 * ("),
    Fault("tracking", "online/learners/krlst.py", "h = kept * known + (1 - kept) * p", "h = known"),
    Fault("tracking", "online/learners/krlst.py", "half = half + corner / 2 * u", "half = half + corner * u"),
    Fault("tracking", "online/learners/krlst.py", "noise = learner.noise / jnp.where(present, weight, 1)", "noise = learner.noise"),
    Fault("tracking", "online/learners/krlst.py", "squares=fades * memory.squares + gain * error", "squares=memory.squares + gain * error"),
    Fault("online", "online/learners/forgetron.py", "a, b = sigma * sigma - 2 * sigma * mu", "a, b = sigma * sigma + 2 * sigma * mu"),
    Fault("online", "online/learners/forgetron.py", "ForgetronMemory(c - damage, squared_norm)", "ForgetronMemory(c, squared_norm)"),
    Fault("online", "online/learners/forgetron.py", "own[0] * candidate.kernel_row[oldest]", "0 * candidate.kernel_row[oldest]"),
    Fault("online", "online/learners/projectron.py", "margin < 1 if self.margin_updates else margin <= 0", "margin <= 0"),
    Fault("online", "online/learners/projectron.py", "2 * beyond / length", "beyond / length"),
    Fault("online", "online/learners/alma.py", "gamma = THRESHOLD / (self.alpha * self._root(state))", "gamma = THRESHOLD / self.alpha"),
    Fault("online", "online/learners/passive_aggressive.py", "columns = 1 if score.shape[0] == 1 else 2", "columns = 1"),
    Fault("online", "online/learners/passive_aggressive.py", "1 / (2 * C) / candidate.weight", "1 / C / candidate.weight"),
    Fault("online", "online/learners/arow.py", "noise = jnp.maximum(self.confidence / candidate.weight, least)", "noise = jnp.maximum(self.confidence, least)"),
    Fault("online", "online/learners/arow.py", "kept = 1 - self.drift", "kept = 1 + 0 * self.drift"),
    Fault("online", "online/learners/pegasos.py", "steps = 1 / (self.regularization.astype(t.dtype) * t)", "steps = 1 / (self.regularization.astype(t.dtype) * (t + 1))"),
    Fault("online", "online/learners/pegasos.py", "Ball(ball.unit / shrink * factor, squared_norm)", "Ball(ball.unit * factor, squared_norm)"),
    Fault("online", "online/state.py", "return self.counts.seen.low + 1", "return self.counts.seen.low"),
    Fault("online", "online/engine.py", "average = average_before(block, new, loop.last, size)", "average = new.expansion.average"),
    Fault("online", "online/span.py", "RIDGE = 1e-3", "RIDGE = 1e-2"),
    # Maintenance.
    Fault("maintenance", "online/maintenance/removal.py", "jnp.where(own < norms[smallest], NOWHERE, smallest)", "smallest"),
    Fault("maintenance", "online/maintenance/removal.py", "without = response - coefficients * kernel_self", "without = response"),
    Fault("maintenance", "online/maintenance/removal.py", "seen = jnp.where(seen == 2 * size, size, seen)", "seen = jnp.where(seen == 2 * size, 0, seen)"),
    Fault("maintenance", "online/maintenance/merging.py", "z = h * self.m.vector + (1 - h) * self.n.vector", "z = (1 - h) * self.m.vector + h * self.n.vector"),
    Fault("maintenance", "online/maintenance/merging.py", "i = oldest_argmin(ages, jnp.min(loss, axis=1))", "i = oldest_argmin(-ages, jnp.min(loss, axis=1))"),
    Fault("maintenance", "online/maintenance/projection.py", "stays = own_cost >= costs[smallest]", "stays = own_cost < costs[smallest]"),
    Fault("maintenance", "online/maintenance/projection.py", "terms = expansion.coefficients_and_sums + received", "terms = expansion.coefficients_and_sums"),
    Fault("maintenance", "online/maintenance/measured.py", "lost / candidate.step", "lost"),
    Fault("maintenance", "online/slots.py", "return jnp.where(bits < 0, jnp.iinfo(bits.dtype).min - bits, bits)", "return bits"),
    Fault("online", "online/ball.py", "return squared_norm + jnp.sum(changes * (2 * at_points + own))", "return squared_norm + jnp.sum(changes * (at_points + own))"),
    # Kernels.
    Fault("kernels", "kernels.py", "distances = jnp.sum(jnp.abs(X[:, None] - Z[None]), axis=2)", "distances = jnp.sum(jnp.abs(X[:, None] - Z[None]), axis=2) ** 2"),
    Fault("kernels", "kernels.py", "return jax.lax.pow(gamma * products + coef0, degree)", "return jax.lax.pow(gamma * products, degree)"),
    # Solvers.
    Fault("solvers", "solvers/kernel/smo.py", "change_i, change_j = signs[i] * change, -signs[j] * change", "change_i, change_j = signs[i] * change, signs[j] * change"),
    Fault("solvers", "solvers/kernel/smo.py", "room_j = jnp.where(signs[j] > 0, coefficients[j], limits[j] - coefficients[j])", "room_j = jnp.where(signs[j] < 0, coefficients[j], limits[j] - coefficients[j])"),
    Fault("solvers", "solvers/kernel/ball_sgd.py", "share = 2 / (time + 1)", "share = 1 / time"),
    Fault("solvers", "solvers/kernel/norms.py", "inner = jnp.minimum(inner, ceiling)", "inner = jnp.minimum(inner, 2 * ceiling)"),
    Fault("solvers", "solvers/kernel/kernel_pegasos.py", "visits = jnp.maximum(state.num_visits, 1)", "visits = jnp.maximum(state.num_visits + 1, 1)"),
    Fault("solvers", "solvers/kernel/sbp.py", "share = (1 + power) / (time + power)", "share = 1 / time"),
    Fault("solvers", "solvers/kernel/sbp.py", "shrink = jnp.where(squared_norm > 1, jax.lax.rsqrt(squared_norm), 1)", "shrink = jax.lax.rsqrt(squared_norm)"),
    Fault("linear", "solvers/linear/dcd.py", "gradient = margin - 1 + ridge * coefficient", "gradient = margin - 1"),
    Fault("linear", "solvers/linear/dcd.py", "is_stationary=whole & jnp.all(ends <= 0)", "is_stationary=whole"),
    Fault("linear", "solvers/linear/mpu.py", "allowed = jnp.where(learn, limit - count, count)", "allowed = jnp.where(learn, limit, count)"),
    Fault("linear", "solvers/linear/linear_pegasos.py", "// k, self._unit_per_block(data)", "// k, self._unit_per_block(data) / k"),
    # Refits.
    Fault("refit", "refitting/newton.py", "lower = finite & (total <= value + ROUNDING * rounded)", "lower = finite"),
    Fault("refit", "refitting/held_out.py", "return np.argmax(scores, 2) != np.argmax(targets, 2)", "return np.argmax(scores, 2) == np.argmax(targets, 2)"),
    Fault("refit", "refitting/one_class.py", "np.nextafter(rate, 1),", "np.nextafter(1 - rate, 1),"),
    Fault("refit", "refitting/one_class.py", "scores.append((features @ coefficients - leverage) / (1 - leverage))", "scores.append(features @ coefficients)"),
    Fault("refit", "refitting/compress.py", "left = left - column[:, None] * (left[pivot] / root)[None]", "left = left"),
    Fault("refit", "refitting/calibration.py", "wanted = weights @ (label * (effective + 1) + others) / (effective + 2)", "wanted = weights @ label"),
    Fault("metric", "refitting/metric.py", "scale = np.sqrt(np.trace(covariance) / kept) if kept > 0 else 1.0", "scale = 1.0"),
    Fault("metric", "refitting/metric.py", "last = learned if judge(last)[0] > error else last", "last = last"),
    Fault("metric", "refitting/metric.py", "prior = scale**2 * start.distance(parameters[2])", "prior = start.distance(parameters[2])"),
    Fault("metric", "refitting/metric.py", "own = jnp.take(own, self.lines.column, mode=\"clip\")", "own = 0 * jnp.take(own, self.lines.column, mode=\"clip\")"),
    Fault("metric", "refitting/metric.py", "return int(np.clip(MOST_STEPS * BATCH // max(rows, 1), *PASSES))", "return PASSES[0]"),
    Fault("metric", "refitting/metric.py", "epochs = max(passes, -(-FEWEST_STEPS * passes // once))", "epochs = passes"),
    Fault("forms", "tables/start_map.py", "return self.width[None] * slopes + self.share[None] * own", "return self.width[None] * slopes"),
    Fault("encoding", "refitting/training_data.py", "held.append((*map(align, batch[:3]), *batch[3:]))", "held.append(batch)"),
    # Encoded columns.
    Fault("encoding", "tables/encoding.py", "numpy.where(is_last, 1 + BEYOND, 1),", "numpy.where(is_last, 1, 1),"),
    Fault("encoding", "tables/encoding.py", "codes = numpy.where(given == MISSING, 0, codes)", "codes = codes"),
    Fault("encoding", "tables/encoding.py", "return numpy.where(missing & lacks, MISSING, numbers)", "return numbers"),
    Fault("encoding", "tables/encoding.py", "more_digits = (centre - first_digits).astype(X.dtype)", "more_digits = 0 * first_digits"),
    # Models, streams, files, estimators.
    Fault("models", "refitting/reduce.py", "kept = np.sort(np.argsort(-lengths, kind=\"stable\")[:size])", "kept = np.sort(np.argsort(lengths, kind=\"stable\")[:size])"),
    Fault("models", "refitting/reduce.py", "masses * (2 * codes - 1)", "2 * codes - 1"),
    Fault("models", "tables/scaling.py", "return float(2 / np.mean(np.minimum(distances, most)))", "return float(1 / np.mean(np.minimum(distances, most)))"),
    Fault("stream", "stream/reservoir.py", "draws = np.random.PCG64(self.seed).advance(self.num_rows)", "draws = np.random.PCG64(self.seed)"),
    Fault("stream", "stream/readers/libsvm_text.py", "first = 0 if zero_based else 1", "first = 1"),
    Fault("stream", "stream/checkpoints.py", "elif rows != self.batch_rows:", "elif False:"),
    Fault("estimators", "training/rows.py", "return np.ascontiguousarray(to_array(X) - origin[None], dtype)", "return np.ascontiguousarray(to_array(X), dtype)"),
    Fault("estimators", "estimators/inputs.py", "return by_class[label_indices(classes, y)]", "return np.ones(len(y))"),
    Fault("estimators", "training/rows.py", "return np.median(np.asarray(self.rows, np.float64), axis=0)", "return np.median(np.asarray(self.rows, np.float64), axis=1)"),
    Fault("estimators", "estimators/regressor.py", "predicted[:, np.argsort(self._levels())] = np.sort(predicted, axis=1)", "predicted = predicted"),
    Fault("river", "river/online.py", "self._no_update_above = state.learner.no_update_above(state)", "self._no_update_above = 0.0"),
    Fault("river", "river/online.py", "needed = len(self._columns) + len(new)", "needed = len(new)"),
    Fault("cli", "cli/targets.py", "share = 100 * right / self.scored", "share = 100 * right / rows"),
    Fault("shared", "_counters.py", "return Words(words.high + (words.low >> BITS), words.low & (UNIT - 1))", "return Words(words.high, words.low & (UNIT - 1))"),
    # The form of a table.
    Fault("forms", "training/recipe.py", "return bool(is_alike and least <= largest <= most)", "return bool(least <= largest <= most)"),
    Fault("forms", "training/fit.py", "if np.sum(gain) > deviations * np.sqrt(np.sum(gain**2)):", "if np.sum(gain) < 0:"),
    Fault("forms", "training/fit.py", "_learn_metric(one, PASSES_TO_COMPARE)", "_learn_metric(one)"),
    Fault("forms", "tables/form.py", "usual = BINS * rows**POWER", "usual = 10 * BINS"),
    Fault("forms", "tables/form.py", "return min(most, rows / NARROWNESS_OF)", "return most"),
    Fault("forms", "training/recipe.py", "codes is None or not self.may_learn_metric", "codes is None"),
    Fault("forms", "tables/start_map.py", "width = np.where(is_missing, -low[first], width)", "width = width * ~is_missing"),
    Fault("forms", "tables/start_map.py", "scale = np.sqrt(np.trace(products) / np.sum(lengths))", "scale = 1.0"),
    Fault("encoding", "tables/encoding.py", "for one in (*nominal, *found)", "for one in nominal"),
    # Estimators that learn a stream, and their refit before a prediction.
    Fault("forms", "estimators/online.py", "if reservoir.num_rows >= GROWTH * self._rows_fitted:", "if not self._rows_fitted:"),
    Fault("estimators", "estimators/online.py", "model=average_iterates(model.model) if averages else model.model", "model=model.model"),
    Fault("estimators", "training/targets.py", "totals = before.total + np.cumsum(weights)", "totals = np.cumsum(weights)"),
    Fault("estimators", "estimators/regressor.py", "else losses.quantile(self._levels())", "else losses.quantile(self._levels() - 0.05)"),
    Fault("probabilities", "refitting/calibration.py", "return float(factor)", "return 1.0"),
    # Streams, and where they go on.
    Fault("stream", "stream/checkpoints.py", 'return Position(model, notes["batches"], notes["rows"], notes["last"])', 'return Position(model, notes["batches"] + 1, notes["rows"], notes["last"])'),
    Fault("stream", "stream/fit.py", "if checkpoints.digest((raw, y, weight)) != start.last:", "if False:"),
    Fault("stream", "stream/model.py", "return int(present.sum()), squares / state.num_columns", "return int(present.sum()), squares"),
    Fault("stream", "stream/fit.py", "batch = _pad(X[part], kept.y[part], kept.weights[part], size, start)", "batch = _pad(X[part], kept.y[part], 1 + 0 * kept.weights[part], size, start)"),
    Fault("stream", "stream/reservoir.py", "at = present[enters]", "at = np.flatnonzero(enters)"),
    Fault("stream", "stream/reservoir.py", "total = self.num_rows + len(present)", "total = self.num_rows + len(y)"),
    Fault("stream", "stream/model.py", "total = model.total_error + error", "total = error"),
    # Rows of a stream of dictionaries.
    Fault("river", "river/online.py", "queue.weights[i] = w / self._seen_weights.typical", "queue.weights[i] = 1"),
    Fault("river", "river/online.py", "labels = None if self._room is None else max(2, len(self._codes))", "labels = self._room"),
    Fault("river", "river/queue.py", "return score - max(others)", "return score - min(others)"),
    # The command line.
    Fault("cli", "cli/targets.py", "return labels, numbers.sum() / (len(numbers) * numbers)", "return labels, np.ones(len(numbers))"),
    Fault("cli", "cli/targets.py", "yield X, y, weight[0] * own if weight else own", "yield X, y, weight[0] if weight else own"),
    Fault("training", "training/fit.py", "learn_metric=learn_metric,", "learn_metric=False,"),
    Fault("training", "training/fit.py", "penalties if is_auto(recipe.penalty) else penalties * typical", "penalties"),
    Fault("training", "training/train.py", "for _ in range(epochs):", "for _ in range(1):"),
    Fault("cli", "cli/predict.py", "values = calibration.of_scores(model, values)", "values = calibration.of_scores(model, 2 * values)"),
    # Files.
    Fault("files", "saving/model_files.py", "if hashlib.sha256(whole).hexdigest().encode() != digest:", "if False:"),
    Fault("files", "saving/model_files.py", "number > FORMAT", "number < 0"),
    Fault("files", "saving/trees.py", 'return jax.random.wrap_key_data(jnp.array(array), impl=node["impl"])', "return jax.random.wrap_key_data(jnp.array(array))"),
    Fault("files", "saving/trees.py", "array = _half_precision.join(half, exponent, dtype)", "array = half.astype(dtype)"),
    # Programs for other runtimes.
    Fault("exporting", "exporting/onnx_graph.py", "labels = label_array(predictor.labels)", "labels = label_array(predictor.labels[::-1])"),
    Fault("exporting", "exporting/predictor.py", "np.argsort(np.argsort(levels)) if levels.ndim", "np.argsort(levels) if levels.ndim"),
    Fault("exporting", "exporting/predictor.py", "np.broadcast_to(np.asarray(model.intercept, dtype), (columns,))", "np.zeros(columns, dtype)"),
    Fault("exporting", "exporting/predictor.py", "variance=np.where(own.constant, 0, deviation**2 * own.variance)", "variance=np.where(own.constant, 0, own.variance)"),
    # Rows that problems share, and files of sparse parts.
    Fault("sharing", "solvers/row_cache.py", "if rows is not None and key is not None and key == self._key:", "if False:"),
    Fault("sharing", "solvers/solver.py", "state = _copy(state)", "state = state  # no copy"),
    Fault("sharing", "solvers/solver.py", "if int(before.digest) != int(data.digest):", "if False:"),
    Fault("sharing", "solvers/solver.py", 'free = {"tolerance": None, "seed": None}', 'free = dict(vars(self))'),
    Fault("sharing", "solvers/linear/patterns.py", "X=self.X.times(new.y * self.y)", "X=self.X.times(new.y)"),
    Fault("sharing", "solvers/linear/mpu.py", "return np.array_equal(*tolerances) and super().is_same(other)", "return super().is_same(other)"),
    Fault("sharing", "solvers/linear/linear_solver.py", "not equal(known, wanted):", "name == 'kernel' and not equal(known, wanted):"),
    Fault("sharing", "solvers/solver.py", 'solver = self.bind(data)\n            solver.check_data(data)', 'solver = self.bind(data)'),
    Fault("shared", "datasets.py", 'parts = tuple(file[f"{key}_{part}"] for part in ("data", "indices", "indptr"))', 'parts = tuple(file[f"{\'X_train\' if part == \'indices\' and \'y_train\' in file else key}_{part}"] for part in ("data", "indices", "indptr"))'),
    # What users see of tables, readers and estimators.
    Fault("estimators", "estimators/batch.py", "weight = weights * of_classes", "weight = weights"),
    Fault("estimators", "estimators/batch.py", 'random = check_random_state(parameters["random_state"])', "random = check_random_state(0)"),
    Fault("estimators", "estimators/batch.py", "TableModel(combine_models(solutions), scaling, classes, names)", "TableModel(combine_models(solutions), scaling, classes[::-1], names)"),
    Fault("estimators", "estimators/batch.py", "if late and solver.tolerance is not None:", "if False:"),
    Fault("estimators", "estimators/batch.py", "scaling, names = training_rows.translation(origin), inputs.names_of(self)", "scaling, names = None, inputs.names_of(self)"),
    Fault("estimators", "estimators/classifier.py", "weights = weights * inputs.class_weights(balance, classes, found, found)", "weights = weights"),
    Fault("estimators", "estimators/classifier.py", "weights = weights * inputs.class_weights(self.class_weight, classes, classes, y)", "weights = weights"),
    Fault("estimators", "estimators/classifier.py", "if fitted and not np.array_equal(classes, self.classes_):", "if False:"),
    Fault("estimators", "estimators/classifier.py", "if isinstance(self.class_weight, str):", "if False:"),
    Fault("estimators", "estimators/inputs.py", "if len(classes) < 2:", "if len(classes) < 1:"),
    Fault("estimators", "estimators/regressor.py", "if not first and y.shape[1:] != np.shape(self._model.intercept):", "if False:"),
    Fault("estimators", "estimators/regressor.py", "tags.target_tags.multi_output = self.quantile is None", "tags.target_tags.multi_output = False"),
    Fault("one_class", "estimators/novelty.py", "return self.decision_function(X) + self.offset_", "return self.decision_function(X)"),
    Fault("one_class", "estimators/novelty.py", "return -float(np.asarray(self._model.intercept))", "return float(np.asarray(self._model.intercept))"),
    Fault("one_class", "estimators/novelty.py", "X, sample_weight = inputs.drop_weightless(sample_weight, X)", "pass"),
    Fault("one_class", "estimators/novelty.py", 'weight=rows.get("weight"),', "weight=None,"),
    Fault("tables", "tables/labels.py", "if np.any(codes < 0):", "if False:"),
    Fault("tables", "tables/labels.py", "row = int(np.argmin(codes))", "row = 0"),
    Fault("tables", "tables/columns.py", 'return X.select(list(known)) if hasattr(type(X), "select") else X[list(known)]', "return X"),
    Fault("tables", "tables/columns.py", "return list(names).index(str(column))", "return len(names) - 1 - list(names).index(str(column))"),
    Fault("tables", "tables/scaling.py", "mean = self.mean + apart * (new / total)", "mean = self.mean + apart / 2"),
    Fault("exporting", "exporting/predictor.py", "model.link == losses.EXP,", "False,"),
    Fault("exporting", "exporting/predictor.py", "unit = np.asarray(model.unit, dtype)", "unit = np.ones_like(np.asarray(model.unit, dtype))"),
    Fault("exporting", "exporting/predictor.py", "mean=mean + deviation * own.mean,", "mean=mean + own.mean,"),
    Fault("exporting", "exporting/predictor.py", "spread.variance(scores / unit[None], share)", "spread.variance(scores, share)"),
    Fault("exporting", "exporting/predictor.py", "kept = _active(model) if whole else np.any(coefficients != 0, axis=1)", "kept = np.any(coefficients != 0, axis=1)"),
    Fault("exporting", "exporting/predictor.py", "lower=True, check_finite=False).T", "lower=True, check_finite=False)"),
    Fault("exporting", "exporting/predictor.py", "centre, unit = mean + deviation * own.centre, deviation * own.unit", "centre, unit = mean + deviation * own.centre, own.unit"),
    Fault("readers", "stream/readers/columns.py", "features = _all_features(names, {*targets, weight, *index})", "features = _all_features(names, {*targets, *index})"),
    Fault("readers", "stream/readers/columns.py", "return names[int(column)]", "return names[int(column) - 1]"),
    Fault("readers", "stream/readers/csv_text.py", 'tab_or_comma = "\\t" if files.ending(one) == ".tsv" else ","', 'tab_or_comma = ","'),
    Fault("readers", "stream/readers/npy_arrays.py", "if shape[0] != n:", "if False:"),
    Fault("readers", "stream/readers/libsvm_text.py", "whole = whole and bool(np.all(y == np.rint(y)))", "whole = False"),
    Fault("readers", "stream/readers/libsvm_text.py", "row += len(block)", "row += 0"),
    Fault("readers", "stream/readers/files.py", "decode(key): NULLS.get(value, decode(value))", "decode(key): decode(value)"),
)  # fmt: skip


def first_failure(folder: pathlib.Path, fault: Fault, marker: str) -> str:
    """The first test of the fault's room that fails, or an empty text."""
    files = [f"tests/test_{name}.py" for name in ROOMS[fault.room]]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", marker, *files]
    command += ["-p", "no:xdist", "-rfE", "--tb=no", "--no-header"]
    env = os.environ | {"PYTHONPATH": str(folder)}
    run = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    lines = run.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if run.returncode and not failed:
        raise RuntimeError(run.stdout[-2000:] + run.stderr[-2000:])
    return failed[0].split(" - ")[0].removeprefix("FAILED tests/") if failed else ""


def catch(fault: Fault) -> tuple[str, bool, float]:
    """The test that sees a fault, or an empty text; whether it is quick; the seconds."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for part in ("budgetjax", "tests", "examples", "benchmarks"):
            shutil.copytree(ROOT / part, folder / part)
        for part in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"):
            shutil.copy(ROOT / part, folder / part)
        # What the fault does not change is compiled already.
        (ROOT / ".pytest_cache").mkdir(exist_ok=True)
        (folder / ".pytest_cache").symlink_to(ROOT / ".pytest_cache")
        path = folder / "budgetjax" / fault.file
        path.write_text(path.read_text().replace(fault.line, fault.fault))
        test = first_failure(folder, fault, "not slow")
        quick = bool(test)
        test = test or first_failure(folder, fault, "slow")
    return test, quick, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a word of the file or the line")
    parser.add_argument("--processes", type=int, default=2, help="side by side")
    args = parser.parse_args()
    only = args.only
    chosen = [fault for fault in FAULTS if only in f"{fault.file} {fault.line}"]
    for fault in chosen:
        times = (ROOT / "budgetjax" / fault.file).read_text().count(fault.line)
        if times != 1:
            raise SystemExit(f"{fault.file} has {fault.line!r} {times} times, not once")
    by_quick = by_all = 0
    with ThreadPool(args.processes) as pool:
        for fault, (test, quick, seconds) in zip(
            chosen, pool.imap(catch, chosen), strict=True
        ):
            by_quick += quick
            by_all += bool(test)
            how = "quick" if quick else "slow " if test else "     "
            shown = f"{fault.file}: {fault.fault}"
            print(
                f"{seconds:5.0f} s  {how}  {shown}\n    {test or 'NOT SEEN'}",
                flush=True,
            )
    print(f"of {len(chosen)} faults: {by_quick} by quick tests, {by_all} by all")


if __name__ == "__main__":
    main()
