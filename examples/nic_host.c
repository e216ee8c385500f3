/* A host of a low-latency network card that another process serves: it maps the card's window, and
 * sends a packet by storing one line and receives by polling another. pure/niq/README.md has the registers;
 * the messages that set this up are vfio-user's.
 *
 *   farlane measure nic receive shm:/tmp/wire --echo &
 *   farlane measure nic --vfio-user /tmp/card --wire shm:/tmp/wire &
 *   cc -O2 -o nic_host examples/nic_host.c && ./nic_host /tmp/card
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 1, DMA_MAP = 2, REGION_INFO = 5, REGION_READ = 9, REGION_WRITE = 10 };
enum { WINDOW_BYTES = 0x40000, MEMORY_BYTES = 0x200000, LINES = 256, RECEIVE = 0x4000 };

struct header { uint16_t id, command; uint32_t size, flags, error; };

static int sock;

static void fail(const char *why) { fprintf(stderr, "%s\n", why); exit(1); }

/* Sends a request with a descriptor (-1: none) and takes the reply's payload; returns the descriptor
 * that came with it, or -1. */
static int ask(uint16_t command, const void *payload, uint32_t length, int send_fd, void *reply, size_t room) {
    static uint16_t id;
    union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
    char message[4096];
    struct header header = { ++id, command, sizeof header + length, 0, 0 };
    memcpy(message, &header, sizeof header);
    memcpy(message + sizeof header, payload, length);
    struct iovec part = { message, header.size };
    struct msghdr sent = { .msg_iov = &part, .msg_iovlen = 1 };
    if (send_fd >= 0) {
        sent.msg_control = control.bytes, sent.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&sent);
        rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &send_fd, sizeof(int));
    }
    if (sendmsg(sock, &sent, 0) != (ssize_t)header.size) fail("the request could not be sent");
    size_t got = 0;
    int fd = -1;
    do {
        part = (struct iovec){ message + got, sizeof message - got };
        struct msghdr came = { .msg_iov = &part, .msg_iovlen = 1,
                               .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
        ssize_t count = recvmsg(sock, &came, 0);
        if (count <= 0) fail("the server is gone");
        struct cmsghdr *rights = CMSG_FIRSTHDR(&came);
        if (rights && rights->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(rights), sizeof(int));
        got += (size_t)count;
        if (got >= sizeof header) memcpy(&header, message, sizeof header);
    } while (got < sizeof header || (got < header.size && got < sizeof message));
    if (header.flags & 0x20) fail("the server answers with an error");
    size_t rest = got - sizeof header;
    memcpy(reply, message + sizeof header, rest < room ? rest : room);
    return fd;
}

struct access { uint64_t offset; uint32_t region, count, value; };

static void write_register(uint64_t offset, uint32_t value) {
    struct access access = { offset, 0, 4, value }, reply;
    ask(REGION_WRITE, &access, 20, -1, &reply, sizeof reply);
}

static uint32_t read_register(uint64_t offset) {
    struct access access = { offset, 0, 4, 0 }, reply = { 0 };
    ask(REGION_READ, &access, 16, -1, &reply, sizeof reply);
    return reply.value;
}

static uint64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The header of line `number`: length, flags, lap. */
static uint32_t header_of(uint64_t number, uint32_t length) {
    return length | (uint32_t)(number / LINES % 65535 + 1) << 16;
}

/* Whether the line at `came` holds the packet of the line `sent`, but for its addresses: an interface
 * also brings frames of others. */
static int is_answer(_Atomic uint64_t *came, const uint64_t *sent) {
    uint64_t line[8];
    for (int word = 0; word < 8; word++) line[word] = atomic_load_explicit(&came[word], memory_order_relaxed);
    /* From the EtherType up to the length and the flags behind the packet. */
    return memcmp((const char *)line + 12, (const char *)sent + 12, 50) == 0;
}

int main(int count, char **arguments) {
    if (count != 2) fail("usage: nic_host SOCKET");
    struct sockaddr_un place = { .sun_family = AF_UNIX };
    if (strlen(arguments[1]) >= sizeof place.sun_path) fail("the path of the socket is too long");
    strcpy(place.sun_path, arguments[1]);
    sock = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(sock, (struct sockaddr *)&place, sizeof place)) fail("no process serves a card there");

    char version[64] = { 0, 0, 1, 0 }, reply[512] = { 0 };
    const char *capabilities = "{\"capabilities\":{}}";
    memcpy(version + 4, capabilities, strlen(capabilities) + 1);
    ask(VERSION, version, 4 + (uint32_t)strlen(capabilities) + 1, -1, reply, sizeof reply);
    if (read_register(0) != 0x3151494e) fail("it is no low-latency network card");

    uint32_t region[8] = { 512, 0, 2 };  /* argsz, flags, index: BAR2 */
    int window_file = ask(REGION_INFO, region, sizeof region, -1, reply, sizeof reply);
    uint64_t size, offset;
    memcpy(&size, reply + 16, sizeof size);
    memcpy(&offset, reply + 24, sizeof offset);
    char *window = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, window_file, (off_t)offset);
    if (window_file < 0 || size != WINDOW_BYTES || window == MAP_FAILED) fail("its window can't be mapped");

    /* Memory for longer packets; this program sends none, but the card may receive some. */
    int memory_file = memfd_create("nic_host", MFD_CLOEXEC);
    if (memory_file < 0 || ftruncate(memory_file, MEMORY_BYTES)) fail("no memory");
    struct { uint32_t argsz, flags; uint64_t offset, address, size; } map = { 32, 3, 0, 0, MEMORY_BYTES };
    ask(DMA_MAP, &map, sizeof map, memory_file, reply, sizeof reply);

    write_register(0x008, 1);                /* take packets to any address */
    write_register(0x418, 0x1000);           /* receive buffers at 4096: 64 of 9216 bytes */
    write_register(0x420, 64 | 144 << 16);
    write_register(0x400, 1);                /* start queue 0 */
    for (int tries = 0; !(read_register(0x00c) & 1); tries++) {
        if (tries > 5000) fail("the wire has no other end");
        usleep(1000);
    }

    uint64_t best = UINT64_MAX, received = 0;
    enum { PACKETS = 1000 };
    for (uint64_t number = 0; number < PACKETS; number++) {
        /* To all stations, of the EtherType for experiments; the packet's number is behind it. */
        uint64_t line[8] = { 0x0002ffffffffffff, 0x0000b58802000000 }, start = nanoseconds();
        memcpy((char *)line + 14, &(uint32_t){ (uint32_t)number }, 4);
        memcpy((char *)line + 60, &(uint32_t){ header_of(number, 60) }, 4);
        _Atomic uint64_t *slot = (void *)(window + number % LINES * 64);
        for (int word = 0; word < 8; word++)   /* the header last */
            atomic_store_explicit(&slot[word], line[word], memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load((_Atomic uint64_t *)(window + 0x8010))) write_register(0x40c, 1);  /* it sleeps: wake it */
        for (int looks = 1, is_back = 0; !is_back; looks++) {
            _Atomic uint64_t *came = (void *)(window + RECEIVE + received % LINES * 64);
            if (atomic_load_explicit(&came[7], memory_order_acquire) >> 48 == header_of(received, 0) >> 16) {
                is_back = is_answer(came, line);
                atomic_store_explicit((_Atomic uint64_t *)(window + 0x9000), ++received, memory_order_release);
            }
            if (nanoseconds() - start > 5000000000u) fail("a packet did not come back");
            if (looks % 1000 == 0) sched_yield();   /* others may need the processor */
        }
        uint64_t took = nanoseconds() - start;
        if (took < best) best = took;
    }
    printf("%d packets of 60 bytes came back, the fastest after %llu ns\n", PACKETS, (unsigned long long)best);
    return 0;
}
