crc32c_beat.sv
