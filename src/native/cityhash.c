#include "native/cityhash.h"

#include "base/bytes.h"

/* The four multipliers and the 128-to-64 mixer's factor of CityHash 1.0.2. */
#define K0 0xc3a5c85c97cb3127u
#define K1 0xb492b66fbe98f273u
#define K2 0x9ae16a3b2f90404fu
#define K3 0xc949d7c7509e6557u
#define MIX 0x9ddfea08eb382d69u

struct pair {
    uint64_t a, b;
};

/* n is 1 to 63 */
static inline uint64_t ror(uint64_t v, unsigned n)
{
    return v >> n | v << (64 - n);
}

static inline uint64_t fold(uint64_t v)
{
    return v ^ v >> 47;
}

static inline uint64_t mix(uint64_t u, uint64_t v)
{
    uint64_t a = fold((u ^ v) * MIX);
    return fold((v ^ a) * MIX) * MIX;
}

static uint64_t hash_to_16(const uint8_t *p, size_t len)
{
    if (len > 8) {
        uint64_t first = u64_at(p), last = u64_at(p + len - 8);
        return mix(first, ror(last + len, (unsigned)len)) ^ last;
    }
    if (len >= 4)
        return mix(len + ((uint64_t)u32_at(p) << 3), u32_at(p + len - 4));
    if (len > 0) {
        uint32_t y = p[0] + ((uint32_t)p[len >> 1] << 8);
        uint32_t z = (uint32_t)len + ((uint32_t)p[len - 1] << 2);
        return fold(y * K2 ^ z * K3) * K2;
    }
    return K2;
}

/* 32 bytes at p and two seeds */
static inline struct pair weak32(const uint8_t *p, uint64_t a, uint64_t b)
{
    uint64_t last = u64_at(p + 24);
    a += u64_at(p);
    b = ror(b + a + last, 21);
    uint64_t start = a;
    a += u64_at(p + 8) + u64_at(p + 16);
    b += ror(a, 44);
    return (struct pair){a + last, b + start};
}

/* Fewer than 128 bytes: 16 at a time in the manner of Murmur. */
static struct cityhash128 hash_short(const uint8_t *p, size_t len, struct pair seed)
{
    uint64_t a = seed.a, b = seed.b, c, d;
    if (len <= 16) {
        a = fold(a * K1) * K1;
        c = b * K1 + hash_to_16(p, len);
        d = fold(a + (len >= 8 ? u64_at(p) : c));
    } else {
        c = mix(u64_at(p + len - 8) + K1, a);
        d = mix(b + len, c + u64_at(p + len - 16));
        a += d;
        for (size_t left = len - 16;; left -= 16, p += 16) {
            a = (a ^ fold(u64_at(p) * K1) * K1) * K1;
            b ^= a;
            c = (c ^ fold(u64_at(p + 8) * K1) * K1) * K1;
            d ^= c;
            if (left <= 16)
                break;
        }
    }
    a = mix(a, c);
    b = mix(d, b);
    return (struct cityhash128){a ^ b, mix(b, a)};
}

struct state {
    uint64_t x, y, z;
    struct pair v, w;
};

static inline void step64(struct state *s, const uint8_t *p)
{
    uint64_t x = ror(s->x + s->y + s->v.a + u64_at(p + 16), 37) * K1;
    uint64_t y = ror(s->y + s->v.b + u64_at(p + 48), 42) * K1;
    x ^= s->w.b;
    y ^= s->v.a;
    uint64_t z = ror(s->z ^ s->w.a, 33);
    s->v = weak32(p, s->v.b * K1, x + s->w.a);
    s->w = weak32(p + 32, z + s->w.b, y);
    s->x = z;
    s->y = y;
    s->z = x;
}

static struct cityhash128 hash_long(const uint8_t *p, size_t len, struct pair seed)
{
    struct state s = {.x = seed.a, .y = seed.b, .z = len * K1};
    s.v.a = ror(s.y ^ K1, 49) * K1 + u64_at(p);
    s.v.b = ror(s.v.a, 42) * K1 + u64_at(p + 8);
    s.w.a = ror(s.y + s.z, 35) * K1 + s.x;
    s.w.b = ror(s.x + u64_at(p + 88), 53) * K1;
    for (; len >= 128; len -= 128, p += 128) {
        step64(&s, p);
        step64(&s, p + 64);
    }
    s.y += ror(s.w.a, 37) * K0 + s.z;
    s.x += ror(s.v.a + s.z, 49) * K0;
    /* the rest in pieces of 32 from the end: the last one reaches back into bytes already done */
    for (size_t done = 0; done < len;) {
        done += 32;
        const uint8_t *at = p + len - done;
        s.y = ror(s.y - s.x, 42) * K0 + s.v.b;
        s.w.a += u64_at(at + 16);
        s.x = ror(s.x, 49) * K0 + s.w.a;
        s.w.a += s.v.a;
        s.v = weak32(at, s.v.a, s.v.b);
    }
    uint64_t x = mix(s.x, s.v.a), y = mix(s.y, s.w.a);
    return (struct cityhash128){mix(x + s.v.b, s.w.b) + y, mix(x + s.w.b, y + s.v.b)};
}

struct cityhash128 cityhash128(const void *data, size_t len)
{
    const uint8_t *p = data;
    if (len < 8)
        return hash_short(p, len, (struct pair){K0, K1});
    if (len < 16) /* both seeds come from the bytes; nothing is left to hash */
        return hash_short(p, 0, (struct pair){u64_at(p) ^ len * K0, u64_at(p + len - 8) ^ K1});
    struct pair seed = {u64_at(p) ^ K3, u64_at(p + 8)};
    return len - 16 < 128 ? hash_short(p + 16, len - 16, seed) : hash_long(p + 16, len - 16, seed);
}
