// The dot products of OpenCL C 3.0 for a checker that only has 1.2 (oclgrind): put before an emitted text that calls them.
int dot_4x8packed_ss_int(const uint x, const uint y)
{
    const int4 products = convert_int4(as_char4(x)) * convert_int4(as_char4(y));
    return products.s0 + products.s1 + products.s2 + products.s3;
}

int dot_4x8packed_su_int(const uint x, const uint y)
{
    const int4 products = convert_int4(as_char4(x)) * convert_int4(as_uchar4(y));
    return products.s0 + products.s1 + products.s2 + products.s3;
}

int dot_4x8packed_us_int(const uint x, const uint y)
{
    return dot_4x8packed_su_int(y, x);
}

uint dot_4x8packed_uu_uint(const uint x, const uint y)
{
    const uint4 products = convert_uint4(as_uchar4(x)) * convert_uint4(as_uchar4(y));
    return products.s0 + products.s1 + products.s2 + products.s3;
}
