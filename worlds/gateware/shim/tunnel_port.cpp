// The shim of gateware/rtl/tunnel/tunnel_port.sv. The structures are those of src/ffi/port.rs.
#include "Vtunnel_port.h"
#include "shim.h"

namespace {
struct In {
    uint64_t now;
    uint64_t cfg_handshake, cfg_ping, cfg_acknowledge, cfg_redial_min, cfg_redial_max;
    uint32_t cfg_instance[4], cfg_name[4], cfg_window[6], entropy[6];
    uint32_t cfg_name_length, cfg_hold_ms, cfg_silence_ms;
    uint32_t s_net_tdata[4], s_tlp_tdata[4];
    uint32_t s_net_tkeep;
    uint8_t rst, run, cfg_upstream, cfg_digests, cfg_stamps;
    uint8_t net_failed, net_connected, s_net_tvalid, m_net_tready;
    uint8_t s_tlp_tvalid, s_tlp_tlast, m_tlp_tready, m_tlp_np_ok, hot_reset, reset_ready, filler;
};

struct Out {
    uint64_t wake_at, round_trip;
    uint32_t m_net_tdata[4], m_tlp_tdata[4];
    uint32_t m_net_tkeep, dropped, resumptions;
    uint8_t net_dial, net_close, s_net_tready, m_net_tvalid, s_tlp_tready, s_tlp_np_room;
    uint8_t m_tlp_tvalid, m_tlp_tkeep, m_tlp_tlast, reset_valid, link_up, open, stopped, busy;
    uint8_t filler[6];
};

template <int Words, typename Wide>
void put(Wide& wide, const uint32_t* words) {
    for (int word = 0; word < Words; word++) wide[word] = words[word];
}
}  // namespace

using Port = Held<Vtunnel_port>;

extern "C" {
Port* farlane_tunnel_port_make() { return new Port; }
void farlane_tunnel_port_free(Port* held) { delete held; }
void farlane_tunnel_port_sizes(size_t* sizes) {
    sizes[0] = sizeof(In);
    sizes[1] = sizeof(Out);
}
void farlane_tunnel_port_cycle(Port* held, const In* in, Out* out) {
    auto& port = held->model;
    port.clk = 0;
    port.rst = in->rst;
    port.now = in->now;
    port.run = in->run;
    port.cfg_upstream = in->cfg_upstream;
    port.cfg_digests = in->cfg_digests;
    port.cfg_stamps = in->cfg_stamps;
    put<4>(port.cfg_instance, in->cfg_instance);
    put<4>(port.cfg_name, in->cfg_name);
    put<6>(port.cfg_window, in->cfg_window);
    put<6>(port.entropy, in->entropy);
    port.cfg_name_length = in->cfg_name_length;
    port.cfg_hold_ms = in->cfg_hold_ms;
    port.cfg_silence_ms = in->cfg_silence_ms;
    port.cfg_handshake = in->cfg_handshake;
    port.cfg_ping = in->cfg_ping;
    port.cfg_acknowledge = in->cfg_acknowledge;
    port.cfg_redial_min = in->cfg_redial_min;
    port.cfg_redial_max = in->cfg_redial_max;
    port.net_failed = in->net_failed;
    port.net_connected = in->net_connected;
    port.s_net_tvalid = in->s_net_tvalid;
    put<4>(port.s_net_tdata, in->s_net_tdata);
    port.s_net_tkeep = in->s_net_tkeep;
    port.m_net_tready = in->m_net_tready;
    port.s_tlp_tvalid = in->s_tlp_tvalid;
    put<4>(port.s_tlp_tdata, in->s_tlp_tdata);
    port.s_tlp_tlast = in->s_tlp_tlast;
    port.m_tlp_tready = in->m_tlp_tready;
    port.m_tlp_np_ok = in->m_tlp_np_ok;
    port.hot_reset = in->hot_reset;
    port.reset_ready = in->reset_ready;
    port.eval();

    out->wake_at = port.wake_at;
    out->round_trip = port.round_trip;
    for (int word = 0; word < 4; word++) {
        out->m_net_tdata[word] = port.m_net_tdata[word];
        out->m_tlp_tdata[word] = port.m_tlp_tdata[word];
    }
    out->m_net_tkeep = port.m_net_tkeep;
    out->dropped = port.dropped;
    out->resumptions = port.resumptions;
    out->net_dial = port.net_dial;
    out->net_close = port.net_close;
    out->s_net_tready = port.s_net_tready;
    out->m_net_tvalid = port.m_net_tvalid;
    out->s_tlp_tready = port.s_tlp_tready;
    out->s_tlp_np_room = port.s_tlp_np_room;
    out->m_tlp_tvalid = port.m_tlp_tvalid;
    out->m_tlp_tkeep = port.m_tlp_tkeep;
    out->m_tlp_tlast = port.m_tlp_tlast;
    out->reset_valid = port.reset_valid;
    out->link_up = port.link_up;
    out->open = port.open;
    out->stopped = port.stopped;
    out->busy = port.busy;

    port.clk = 1;
    port.eval();
}
}
