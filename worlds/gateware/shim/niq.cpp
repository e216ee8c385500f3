// The shim of gateware/rtl/niq/niq.sv.
#include "Vniq.h"
#include "shim.h"

namespace {
struct Beat {
    uint32_t data[4];
    uint16_t keep;
    uint8_t last;
    uint8_t user;
};

// As `Inputs` and `Outputs` of src/ffi/niq.rs.
struct Inputs {
    uint64_t bar0, bar2, station;
    Beat rx_tlp, rx_mac;
    uint16_t completer;
    uint8_t rst, link_up, rx_tlp_valid, rx_mac_valid, tx_tlp_ready, tx_mac_ready, interrupt_ready;
};

struct Outputs {
    Beat tx_tlp, tx_mac;
    uint8_t rx_tlp_ready, rx_mac_ready, tx_tlp_valid, tx_mac_valid, interrupt_valid, interrupt, busy;
};

template <typename Wide>
void copy(Wide& to, const uint32_t* from) {
    for (int word = 0; word < 4; word++) to[word] = from[word];
}

template <typename Wide>
void show(uint32_t* to, const Wide& from) {
    for (int word = 0; word < 4; word++) to[word] = from[word];
}
}  // namespace

using Niq = Held<Vniq>;

extern "C" {
Niq* farlane_niq_make() { return new Niq; }
void farlane_niq_free(Niq* held) { delete held; }
void farlane_niq_sizes(size_t* sizes) {
    sizes[0] = sizeof(Inputs);
    sizes[1] = sizeof(Outputs);
}
void farlane_niq_cycle(Niq* held, const Inputs* in, Outputs* out) {
    Vniq& model = held->model;
    model.rst = in->rst;
    model.bar0 = in->bar0 >> 12;
    model.bar2 = in->bar2 >> 18;
    model.completer = in->completer;
    model.station = in->station;
    model.link_up = in->link_up;
    model.rx_tlp_tvalid = in->rx_tlp_valid;
    copy(model.rx_tlp_tdata, in->rx_tlp.data);
    model.rx_tlp_tkeep = in->rx_tlp.keep;
    model.rx_tlp_tlast = in->rx_tlp.last;
    model.tx_tlp_tready = in->tx_tlp_ready;
    model.tx_mac_tready = in->tx_mac_ready;
    model.rx_mac_tvalid = in->rx_mac_valid;
    copy(model.rx_mac_tdata, in->rx_mac.data);
    model.rx_mac_tkeep = in->rx_mac.keep;
    model.rx_mac_tlast = in->rx_mac.last;
    model.rx_mac_tuser = in->rx_mac.user;
    model.interrupt_tready = in->interrupt_ready;
    model.clk = 0;
    model.eval();
    out->rx_tlp_ready = model.rx_tlp_tready;
    out->rx_mac_ready = model.rx_mac_tready;
    out->tx_tlp_valid = model.tx_tlp_tvalid;
    show(out->tx_tlp.data, model.tx_tlp_tdata);
    out->tx_tlp.keep = model.tx_tlp_tkeep;
    out->tx_tlp.last = model.tx_tlp_tlast;
    out->tx_tlp.user = 0;
    out->tx_mac_valid = model.tx_mac_tvalid;
    show(out->tx_mac.data, model.tx_mac_tdata);
    out->tx_mac.keep = model.tx_mac_tkeep;
    out->tx_mac.last = model.tx_mac_tlast;
    out->tx_mac.user = 0;
    out->interrupt_valid = model.interrupt_tvalid;
    out->interrupt = model.interrupt_tdata;
    out->busy = model.busy;
    model.clk = 1;
    model.eval();
}
}
