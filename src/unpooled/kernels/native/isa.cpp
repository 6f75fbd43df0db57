// The kernels for one instruction set. CMakeLists.txt compiles this file once for each, with UNPOOLED_ISA set to its
// namespace (baseline, v3, v4) and UNPOOLED_ISA_NAME to what it is called; the headers below put all they have in that
// namespace. float32 and float64 rows are two template instances, chosen here.
#include "fuzzy.hpp"
#include "kmeans.hpp"
#include "local_steps.hpp"
#include "minibatch.hpp"
#include "observed.hpp"
#include "scatter.hpp"
#include "totals.hpp"

#define UNPOOLED_TEXT_(name) #name
#define UNPOOLED_TEXT(name) UNPOOLED_TEXT_(name)

namespace unpooled {
namespace UNPOOLED_ISA {

extern const Table table;
const Table table = {
    UNPOOLED_TEXT(UNPOOLED_ISA_NAME),
    path_name,
    [](const Rows& rows, const double* centers, int64_t sets, int64_t k, const TotalsOut& out, int threads) {
        if (rows.single)
            TotalsWork<float>(rows, centers, sets, k, out, threads).run();
        else
            TotalsWork<double>(rows, centers, sets, k, out, threads).run();
    },
    [](const Rows& rows, const double* centers, int64_t k, int32_t* labels, double* sqdist, int threads) {
        (rows.single ? nearest<float> : nearest<double>)(rows, centers, k, labels, sqdist, threads);
    },
    [](const Rows& rows, const double* centers, int64_t k, const LocalPlan& plan, const LocalOut& out,
       const LabelCache* cache, int threads) {
        (rows.single ? local_steps<float> : local_steps<double>)(rows, centers, k, plan, out, cache, threads);
    },
    [](const Rows& rows, int64_t k, const uint64_t* seeds, const KMeansPlan& plan, const KMeansOut& out,
       int threads) { (rows.single ? kmeans<float> : kmeans<double>)(rows, k, seeds, plan, out, threads); },
    [](const Rows& rows, const double* centers, int64_t k, const uint64_t* seeds, const MiniBatchPlan& plan,
       const MiniBatchOut& out, int threads) {
        (rows.single ? minibatch<float> : minibatch<double>)(rows, centers, k, seeds, plan, out, threads);
    },
    [](const Rows& rows, const double* centers, int64_t k, const ScatterOut& out, int threads) {
        if (rows.single)
            ScatterWork<float>(rows, centers, k, out, threads).run();
        else
            ScatterWork<double>(rows, centers, k, out, threads).run();
    },
    [](const Rows& rows, const double* shares, const double* centers, int64_t k, const ObservedOut& out, int threads) {
        if (rows.single)
            ObservedWork<float>(rows, shares, centers, k, out, threads).run();
        else
            ObservedWork<double>(rows, shares, centers, k, out, threads).run();
    },
    [](const Rows& rows, const double* centers, int64_t sets, int64_t k, double m, double power, const FuzzyOut& out,
       int threads) {
        if (rows.single)
            FuzzyWork<float>(rows, centers, sets, k, {m, power}, out, threads).run();
        else
            FuzzyWork<double>(rows, centers, sets, k, {m, power}, out, threads).run();
    },
    [](const Rows& rows, const double* centers, int64_t k, double m, double power, double* out, int threads) {
        (rows.single ? memberships<float> : memberships<double>)(rows, centers, k, {m, power}, out, threads);
    },
    fold_moves,
    fold,
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
