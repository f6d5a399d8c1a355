import CZlib

/// gzip (RFC 1952) by zlib, with an absolute limit on the size of the result.
package enum Gzip {
    /// Why there is no result.
    package enum Failure: Error, Hashable, Sendable {
        /// Not gzip, damaged or cut.
        case damaged
        /// The result would exceed the limit.
        case tooLarge
        /// zlib could not work, for want of memory.
        case unavailable
    }

    private static let gzipWindow: Int32 = 15 + 16
    /// zlib's second level takes three quarters of the first one's time for events, and makes them no longer.
    package static let fastLevel: Int32 = 2
    private static let structSize = Int32(MemoryLayout<z_stream>.size)

    /// - Parameter level: 1 to 9 (small).
    /// - Throws: ``Failure/unavailable``.
    package static func compress(_ bytes: [UInt8], level: Int32 = fastLevel) throws(Failure) -> [UInt8] {
        var stream = z_stream()
        guard
            deflateInit2_(
                &stream, level, Z_DEFLATED, gzipWindow, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION, structSize) == Z_OK
        else { throw .unavailable }
        defer { deflateEnd(&stream) }
        let bound = Int(deflateBound(&stream, UInt(bytes.count)))
        var status: Int32 = Z_OK
        let result = bytes.withUnsafeBufferPointer { input in
            [UInt8](unsafeUninitializedCapacity: bound) { output, count in
                stream.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
                stream.avail_in = UInt32(input.count)
                stream.next_out = output.baseAddress
                stream.avail_out = UInt32(output.count)
                status = deflate(&stream, Z_FINISH)
                count = output.count - Int(stream.avail_out)
            }
        }
        guard status == Z_STREAM_END else { throw .unavailable }
        return result
    }

    /// Makes one gzip file of parts that can be decompressed as soon as they have arrived.
    package final class Compressor {
        private var stream = z_stream()

        /// - Throws: ``Failure/unavailable``.
        package init(level: Int32 = fastLevel) throws(Failure) {
            guard
                deflateInit2_(&stream, level, Z_DEFLATED, gzipWindow, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION, structSize) == Z_OK
            else { throw .unavailable }
        }

        deinit { deflateEnd(&stream) }

        /// - Parameter isLast: Whether the file ends after these bytes.
        /// - Returns: The compressed form of all of these bytes.
        package func add(_ bytes: [UInt8], isLast: Bool = false) -> [UInt8] {
            var result: [UInt8] = []
            bytes.withUnsafeBufferPointer { input in
                stream.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
                stream.avail_in = UInt32(input.count)
                withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 64 * 1024) { chunk in
                    repeat {
                        stream.next_out = chunk.baseAddress
                        stream.avail_out = UInt32(chunk.count)
                        // Z_BUF_ERROR means that nothing was left to do, which is no failure (https://zlib.net/manual.html).
                        _ = deflate(&stream, isLast ? Z_FINISH : Z_SYNC_FLUSH)
                        result.append(contentsOf: UnsafeBufferPointer(rebasing: chunk[..<(chunk.count - Int(stream.avail_out))]))
                    } while stream.avail_out == 0
                }
            }
            return result
        }
    }

    /// Whether bytes begin as gzip does (RFC 1952 §2.3.1), or zlib's format with its usual window (RFC 1950 §2.2). No JSON text does.
    package static func isPacked(_ bytes: [UInt8]) -> Bool {
        guard bytes.count >= 2 else { return false }
        return (bytes[0], bytes[1]) == (0x1F, 0x8B) || bytes[0] == 0x78 && (UInt16(bytes[0]) << 8 | UInt16(bytes[1])) % 31 == 0
    }

    /// - Parameters:
    ///   - limit: The most bytes that the result may have, whatever the input claims.
    ///   - takesZlib: Whether it may be in zlib's format (RFC 1950), too.
    package static func decompress(_ bytes: [UInt8], limit: Int, takesZlib: Bool = false) throws(Failure) -> [UInt8] {
        var stream = z_stream()
        // 32 more tells the two apart (https://zlib.net/manual.html).
        guard inflateInit2_(&stream, takesZlib ? 15 + 32 : gzipWindow, ZLIB_VERSION, structSize) == Z_OK else { throw .unavailable }
        defer { inflateEnd(&stream) }
        var result: [UInt8] = []
        result.reserveCapacity(min(limit, bytes.count * 6))
        let outcome: Result<Void, Failure> = bytes.withUnsafeBufferPointer { input in
            stream.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
            stream.avail_in = UInt32(input.count)
            return withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 64 * 1024) { chunk in
                while true {
                    stream.next_out = chunk.baseAddress
                    stream.avail_out = UInt32(chunk.count)
                    let status = inflate(&stream, Z_NO_FLUSH)
                    let produced = chunk.count - Int(stream.avail_out)
                    guard result.count + produced <= limit else { return .failure(.tooLarge) }
                    result.append(contentsOf: UnsafeBufferPointer(rebasing: chunk[..<produced]))
                    switch status {
                    case Z_STREAM_END:
                        // A gzip file may hold several members, one after the other (RFC 1952 §2.2).
                        // Zeros after the last one are padding, as for gzip(1).
                        let rest = UnsafeBufferPointer(start: stream.next_in, count: Int(stream.avail_in))
                        if rest.allSatisfy({ $0 == 0 }) { return .success(()) }
                        guard inflateReset(&stream) == Z_OK else { return .failure(.damaged) }
                    case Z_OK where stream.avail_in > 0 || stream.avail_out == 0: continue
                    case Z_MEM_ERROR: return .failure(.unavailable)
                    default: return .failure(.damaged)
                    }
                }
            }
        }
        try outcome.get()
        return result
    }
}
