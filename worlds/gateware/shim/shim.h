// What the shims of all models share. A shim has four C functions for its model: make, free, size
// and cycle. `cycle` takes all inputs, lets the circuit settle, returns all outputs, and then gives
// it a rising clock edge. So outputs are those that the circuit shows before that edge.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <verilated.h>

// A model with its context, so that models on different threads have nothing in common. A context
// has a pool of threads unless it is limited to one before its model is made. While a model is made
// or freed, Verilator looks for its context among the thread's own, which may be another model's.
template <typename Model>
struct Held {
    VerilatedContext context;
    Model model;
    Held() : model{prepared(context)} {}
    ~Held() { Verilated::threadContextp(&context); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

private:
    static VerilatedContext* prepared(VerilatedContext& context) {
        context.threads(1);
        Verilated::threadContextp(&context);
        return &context;
    }
};
