// The shim of gateware/rtl/common/crc32c_beat.sv, which has no clock.
#include "Vcrc32c_beat.h"
#include "shim.h"

using Crc = Held<Vcrc32c_beat>;

extern "C" {
Crc* farlane_crc32c_beat_make() { return new Crc; }
void farlane_crc32c_beat_free(Crc* held) { delete held; }
uint32_t farlane_crc32c_beat(Crc* held, uint32_t state, const uint32_t* data, uint32_t dwords) {
    held->model.state = state;
    for (int word = 0; word < 4; word++) held->model.data[word] = data[word];
    held->model.dwords = dwords;
    held->model.eval();
    return held->model.next;
}
}
