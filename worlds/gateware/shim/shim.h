// What the shims of all models share. A shim has four C functions for its model: make, free, size
// and cycle. `cycle` takes all inputs, lets the circuit settle, returns all outputs, and then gives
// it a rising clock edge. So outputs are those that the circuit shows before that edge.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <verilated.h>

// A model with its context, so that models on different threads have nothing in common. A context
// has a pool of threads unless it is limited to one before its model is made.
template <typename Model>
struct Held {
    VerilatedContext context;
    Model model;
    Held() : model{single(context)} {}

private:
    static VerilatedContext* single(VerilatedContext& context) {
        context.threads(1);
        return &context;
    }
};
