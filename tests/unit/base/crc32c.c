/* CRC-32C at all lengths around the two ways it is computed, against the polynomial bit by bit. */
#include "test.h"

#include "base/crc32c.h"

static uint32_t slow(uint32_t crc, const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) ? 0x82f63b78u : 0);
    }
    return crc;
}

static void test_known(void **state)
{
    (void)state;
    assert_int_equal(crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c("", 0), 0);
}

static void test_lengths(void **state)
{
    static uint8_t bytes[1024];
    uint32_t seed = 1;
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    for (size_t len = 0; len <= 600; len++)
        for (size_t off = 0; off < 16; off += 5)
            assert_int_equal(crc32c_update(seed, bytes + off, len), slow(seed, bytes + off, len));
}

static void test_zeros(void **state)
{
    static const uint8_t zeros[20000];
    (void)state;
    for (size_t len = 0; len <= sizeof zeros; len += 1 + len / 3)
        assert_int_equal(crc32c_zeros(0x12345678u, len), slow(0x12345678u, zeros, len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
