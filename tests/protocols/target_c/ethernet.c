/* An Ethernet controller whose other end is the test. */
#include <stdint.h>

static uint32_t (*receive)(uint32_t *frame);
static void (*sent)(const uint32_t *frame, uint32_t bytes);

void ethernet_connect(uint32_t (*from)(uint32_t *), void (*to)(const uint32_t *, uint32_t)) {
    receive = from;
    sent = to;
}

void ethernet_start(const uint8_t address[6]) { (void)address; }
uint32_t ethernet_receive(uint32_t *frame) { return receive(frame); }
void ethernet_send(const uint32_t *frame, uint32_t bytes) { sent(frame, bytes); }
