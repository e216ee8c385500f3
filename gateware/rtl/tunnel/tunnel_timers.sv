// The deadlines of a session: instants in nanoseconds of the port's clock, as in `Timers` of the
// Rust engine. Each is armed or not.
//
// `due` says which have come. `wake_at` is the earliest that has not, or all ones if none is armed:
// nothing happens by itself before that. Combinational, but for the deadlines themselves.
//
//           ____      ____      ____
// clk    __/    \____/    \____/    \__
// arm    __/‾‾‾‾‾‾‾‾‾\_________________
// at     __X 500     X_________________
// now      X 480     X 490     X 500
// due    ______________________/‾‾‾‾‾‾‾   until disarmed
module tunnel_timers #(
    parameter int unsigned Count = 7
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic [63:0]            now,
    input  logic [Count-1:0]       arm,
    input  logic [Count-1:0][63:0] at,
    input  logic [Count-1:0]       disarm,  // unless armed anew
    output logic [Count-1:0]       armed,
    output logic [Count-1:0]       due,
    output logic [63:0]            wake_at
);
  logic [Count-1:0][63:0] deadline;

  always_comb begin
    wake_at = '1;
    for (int timer = 0; timer < int'(Count); timer++) begin
      due[timer] = armed[timer] && deadline[timer] <= now;
      if (armed[timer] && !due[timer] && deadline[timer] < wake_at) wake_at = deadline[timer];
    end
  end

  always_ff @(posedge clk) begin
    for (int timer = 0; timer < int'(Count); timer++) begin
      if (arm[timer]) deadline[timer] <= at[timer];
    end
    armed <= (armed & ~disarm) | arm;
    if (rst) armed <= arm;
  end
endmodule
