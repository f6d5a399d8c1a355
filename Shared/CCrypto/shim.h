#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/opensslv.h>

/// SHA-256, looked up: since version 3 each use of what `EVP_sha256` returns looks for it anew, which takes longer than a short text's hash.
static inline const EVP_MD *hapax_sha256(void) {
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
    const EVP_MD *found = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (found) return found;
#endif
    return EVP_sha256();
}
