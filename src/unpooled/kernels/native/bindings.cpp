// The extension module _native, which Compiled (../__init__.py), exact_solver.py and grouping.py call. Python has checked the
// shapes; here arrays become pointers, and the interpreter's lock is released while a kernel runs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdlib>
#include <string>

#include "dispatch.hpp"
#include "exact/budgets.hpp"
#include "exact/deal.hpp"
#include "exact/semidefinite.hpp"
#include "exact/solve.hpp"
#include "grouping/group.hpp"
#include "text/plain_numbers.hpp"

namespace nb = nanobind;

namespace unpooled {

namespace {

using AnyRows = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
using Weights = nb::object;

const Table* table_for(const char* name) {
    const Table* found = choose(name);
    if (!found) throw nb::value_error((std::string("this machine has no kernels for ") + name).c_str());
    return found;
}

const Table* chosen = nullptr;

const Table* kernels() {
    if (!chosen) {
        const char* name = std::getenv("UNPOOLED_KERNELS");
        chosen = table_for(name ? name : "");
    }
    return chosen;
}

Rows rows_of(const AnyRows& x, const In<int64_t>* offsets, const nb::object& weights) {
    const bool single = x.dtype() == nb::dtype<float>();
    if (!single && x.dtype() != nb::dtype<double>()) throw nb::type_error("rows must be float32 or float64");
    Rows rows{};
    rows.x = x.data();
    rows.single = single;
    rows.n = static_cast<int64_t>(x.shape(0));
    rows.d = static_cast<int64_t>(x.shape(1));
    if (!weights.is_none()) {
        const auto w = nb::cast<In<double>>(weights);
        if (static_cast<int64_t>(w.size()) != rows.n) throw nb::value_error("one weight per row");
        rows.weights = w.data();
    }
    if (offsets) {
        rows.offsets = offsets->data();
        rows.sites = static_cast<int64_t>(offsets->size()) - 1;
        const int64_t* o = rows.offsets;
        bool fits = rows.sites >= 0 && o[0] == 0 && o[rows.sites] == rows.n;
        for (int64_t s = 0; fits && s < rows.sites; ++s) fits = o[s] <= o[s + 1];
        if (!fits) throw nb::value_error("offsets must rise from 0 to the number of rows");
    }
    return rows;
}

}  // namespace

NB_MODULE(_native, m) {
    m.attr("FEW_DIMENSIONS") = FEW_DIMENSIONS;
    m.def("isa", [] { return kernels()->isa; });
    m.def("use", [](const char* name) { chosen = table_for(name); });
    m.def("path_name", [](const char* stage, int64_t n, int64_t d, int64_t k, bool weighted, bool cached,
                          int64_t n_init, int64_t max_iter, int64_t swaps) {
        const char* name = kernels()->path_name(stage, {n, d, k, weighted, cached, {n_init, max_iter, swaps}});
        if (!name) throw nb::value_error((std::string("no stage is called ") + stage).c_str());
        return name;
    });

    m.def("totals", [](AnyRows x, In<int64_t> offsets, In<double> centers, nb::object weights, Out<double> sums,
                       Out<double> mass, Out<double> squares, Out<double> inertia, nb::object labels, int threads) {
        const Rows rows = rows_of(x, &offsets, weights);
        const int64_t sets = centers.shape(0), k = centers.shape(1);
        const TotalsOut out{sums.data(), mass.data(), rows.weights ? squares.data() : nullptr, inertia.data(),
                            labels.is_none() ? nullptr : nb::cast<Out<int32_t>>(labels).data()};
        nb::gil_scoped_release release;
        kernels()->totals(rows, centers.data(), sets, k, out, threads);
    }, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
       nb::arg());

    m.def("nearest", [](AnyRows x, In<double> centers, Out<int32_t> labels, Out<double> sqdist, int threads) {
        const Rows rows = rows_of(x, nullptr, nb::none());
        nb::gil_scoped_release release;
        kernels()->nearest(rows, centers.data(), centers.shape(0), labels.data(), sqdist.data(), threads);
    });

    m.def("local_steps", [](AnyRows x, In<int64_t> offsets, In<double> centers, nb::object weights, Out<double> moved,
                            Out<double> counts, int64_t steps, bool recount, nb::object recall, int threads) {
        const Rows rows = rows_of(x, &offsets, weights);
        const bool own = centers.ndim() == 3;
        const int64_t k = centers.shape(own ? 1 : 0), size = rows.sites * k;
        double* c = counts.data();
        const LocalOut out{moved.data(), c, c + size, c + 2 * size, c + 3 * size, c + 4 * size, c + 5 * size};
        LabelCache cache{};
        if (!recall.is_none())
            cache = {nb::cast<Out<int64_t>>(recall[0]).data(), nb::cast<Out<double>>(recall[1]).data(),
                     nb::cast<Out<float>>(recall[2]).data(),   nb::cast<Out<double>>(recall[3]).data(),
                     nb::cast<Out<int64_t>>(recall[4]).data(), nb::cast<Out<double>>(recall[5]).data(),
                     nb::cast<In<double>>(recall[6]).data()};
        nb::gil_scoped_release release;
        kernels()->local_steps(rows, centers.data(), k, {steps, own, recount}, out, recall.is_none() ? nullptr : &cache,
                               threads);
    }, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
          nb::arg().none(), nb::arg());

    m.def("kmeans", [](AnyRows x, In<int64_t> offsets, In<uint64_t> seeds, nb::object weights, Out<double> centers,
                       Out<double> mass, Out<double> squares, Out<double> inertia, int64_t n_init, int64_t max_iter,
                       int64_t swaps, int threads) {
        const Rows rows = rows_of(x, &offsets, weights);
        const KMeansOut out{centers.data(), mass.data(), squares.data(), inertia.data()};
        nb::gil_scoped_release release;
        kernels()->kmeans(rows, centers.shape(1), seeds.data(), {n_init, max_iter, swaps}, out, threads);
    }, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
          nb::arg(), nb::arg(), nb::arg());

    m.def("minibatch", [](AnyRows x, In<int64_t> offsets, In<double> start, In<uint64_t> seeds, nb::object weights,
                          Out<double> centers, Out<double> mass, Out<double> squares, int64_t epochs, int64_t batch,
                          double rate, int threads) {
        const Rows rows = rows_of(x, &offsets, weights);
        const MiniBatchOut out{centers.data(), mass.data(), squares.data()};
        nb::gil_scoped_release release;
        kernels()->minibatch(rows, start.data(), start.shape(0), seeds.data(), {epochs, batch, rate}, out, threads);
    }, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
          nb::arg(), nb::arg(), nb::arg());

    m.def("plain_numbers", [](nb::bytes cells, char delimiter, Out<double> values) {
        const char* begin = cells.c_str();
        const size_t size = cells.size();
        text::Points points;
        int64_t rows = 0;
        {
            nb::gil_scoped_release release;
            rows = text::plain_numbers(begin, size, delimiter, values.shape(1), values.data(), values.shape(0), points);
        }
        return nb::make_tuple(rows, points.any, points.sure);
    });

    m.def("scatter", [](AnyRows x, In<int64_t> offsets, In<double> centers, nb::object weights, Out<double> sums,
                        int threads) {
        const Rows rows = rows_of(x, &offsets, weights);
        const int64_t k = centers.shape(0), size = rows.sites * k;
        double* c = sums.data();
        const ScatterOut out{c, c + size, c + 2 * size, c + 3 * size, c + 4 * size};
        nb::gil_scoped_release release;
        kernels()->scatter(rows, centers.data(), k, out, threads);
    }, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg());

    m.def("observed", [](AnyRows x, In<int64_t> offsets, In<double> centers, nb::object weights, nb::object shares,
                         Out<double> clusters, Out<double> cells, nb::object labels, nb::object sqdist, bool quality,
                         int threads) {
        const Rows rows = rows_of(x, &offsets, weights);
        const int64_t k = centers.shape(0), size = rows.sites * k, wide = size * rows.d;
        double *c = clusters.data(), *e = cells.data();
        const double* share = shares.is_none() ? nullptr : nb::cast<In<double>>(shares).data();
        const ObservedOut out{c, c + size, c + 2 * size, c + 3 * size, c + 4 * size, e, e + wide, e + 2 * wide,
                              e + 3 * wide, labels.is_none() ? nullptr : nb::cast<Out<int32_t>>(labels).data(),
                              sqdist.is_none() ? nullptr : nb::cast<Out<double>>(sqdist).data(), quality};
        nb::gil_scoped_release release;
        kernels()->observed(rows, share, centers.data(), k, out, threads);
    }, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg().none(),
          nb::arg().none(), nb::arg(), nb::arg());

    m.def("fuzzy", [](AnyRows x, In<int64_t> offsets, In<double> centers, nb::object weights, Out<double> sums,
                      Out<double> counts, double m, double power, int threads) {
        const Rows rows = rows_of(x, &offsets, weights);
        const int64_t sets = centers.shape(0), k = centers.shape(1), size = rows.sites * sets * k;
        double* c = counts.data();
        const FuzzyOut out{sums.data(), c, c + size, c + 2 * size, c + 3 * size};
        nb::gil_scoped_release release;
        kernels()->fuzzy(rows, centers.data(), sets, k, m, power, out, threads);
    }, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg());

    m.def("memberships", [](AnyRows x, In<double> centers, Out<double> out, double m, double power, int threads) {
        const Rows rows = rows_of(x, nullptr, nb::none());
        nb::gil_scoped_release release;
        kernels()->memberships(rows, centers.data(), centers.shape(0), m, power, out.data(), threads);
    });

    m.def("exact", [](In<double> x, In<double> w, nb::object q, In<double> lo, In<double> hi, int symmetry,
                      In<double> r, In<int32_t> cell, nb::object warm, int starts, int64_t nodes, double seconds,
                      Out<double> suffix, bool suffix_known, Out<double> centers, Out<int32_t> labels) {
        exact::Task task{};
        task.n = static_cast<int>(x.shape(0)), task.d = static_cast<int>(x.shape(1));
        task.k = static_cast<int>(lo.shape(0));
        task.x = x.data(), task.w = w.data(), task.lo = lo.data(), task.hi = hi.data();
        if (!q.is_none()) task.q = nb::cast<In<double>>(q).data();
        if (!warm.is_none()) task.warm = nb::cast<In<int32_t>>(warm).data();
        task.symmetry = symmetry, task.references = static_cast<int>(r.shape(0));
        task.r = r.data(), task.cell = cell.data();
        task.starts = starts, task.nodes = nodes, task.seconds = seconds;
        task.suffix = suffix.data(), task.suffix_known = suffix_known;
        exact::Result result{};
        result.centers = centers.data(), result.labels = labels.data();
        {
            nb::gil_scoped_release release;
            exact::solve(task, result);
        }
        return nb::make_tuple(result.value, result.lower, result.nodes, result.before, result.complete, result.proved);
    }, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
          nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg());

    m.def("budget_bound", [](In<double> x, In<double> w, int k, Out<int32_t> labels, double goal, int rounds,
                             int64_t boxes, int64_t work, double seconds, int nodes) {
        exact::BudgetTask task{};
        task.n = static_cast<int>(x.shape(0)), task.d = static_cast<int>(x.shape(1)), task.k = k;
        task.x = x.data(), task.w = w.data(), task.labels = labels.data();
        task.goal = goal, task.rounds = rounds, task.boxes = boxes, task.work = work, task.seconds = seconds, task.nodes = nodes;
        exact::BudgetResult result{};
        {
            nb::gil_scoped_release release;
            exact::bound_by_budgets(task, result);
        }
        return nb::make_tuple(result.lower, result.rounds, result.boxes, result.work, result.nodes, result.converged);
    });

    m.def("semidefinite_bound", [](In<double> x, In<double> w, int k, In<int32_t> labels, double goal, int64_t work,
                                   double seconds) {
        exact::SemidefiniteTask task{};
        task.n = static_cast<int>(x.shape(0)), task.d = static_cast<int>(x.shape(1)), task.k = k;
        task.x = x.data(), task.w = w.data(), task.labels = labels.data();
        task.goal = goal, task.work = work, task.seconds = seconds;
        exact::SemidefiniteResult result{};
        {
            nb::gil_scoped_release release;
            exact::bound_by_semidefinite(task, result);
        }
        return nb::make_tuple(result.lower, result.work, result.rounds, result.unique);
    });

    m.def("deal", [](In<double> x, In<double> w, int k, In<int32_t> labels, int parts, int sweeps,
                     Out<int32_t> part) {
        exact::DealTask task{};
        task.n = static_cast<int64_t>(x.shape(0)), task.d = static_cast<int>(x.shape(1));
        task.k = k, task.parts = parts, task.sweeps = sweeps;
        task.x = x.data(), task.w = w.data(), task.labels = labels.data();
        nb::gil_scoped_release release;
        exact::deal(task, part.data());
    });

    m.def("groups", [](AnyRows x, int least, In<int32_t> classes, In<int32_t> first, In<double> limits,
                       nb::object progress, Out<int64_t> labels) {
        const Rows rows = rows_of(x, nullptr, nb::none());
        grouping::Task task{};
        if (rows.single) task.single = static_cast<const float*>(rows.x);
        else task.full = static_cast<const double*>(rows.x);
        task.n = rows.n, task.columns = static_cast<int>(rows.d), task.least = least;
        task.classes = {classes.data(), first.data(), limits.data(), static_cast<int>(first.shape(0)) - 1};
        task.tell = [&progress](double share) {
            nb::gil_scoped_acquire acquire;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (!progress.is_none()) progress(share);
        };
        nb::gil_scoped_release release;
        grouping::group(task, labels.data());
    }, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg());

    m.def("fold_moves", [](In<double> centers, In<double> received, In<double> weight, Out<double> weighted,
                           Out<double> plain) {
        nb::gil_scoped_release release;
        kernels()->fold_moves(centers.data(), received.data(), weight.data(), centers.shape(0), centers.shape(1),
                              centers.shape(2), weighted.data(), plain.data());
    });

    m.def("fold", [](Out<double> total, In<double> block) {
        nb::gil_scoped_release release;
        kernels()->fold(total.data(), block.data(), block.shape(0), block.shape(1));
    });
}

}  // namespace unpooled
