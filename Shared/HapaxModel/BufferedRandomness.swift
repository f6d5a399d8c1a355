#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The operating system's random bytes, fetched 256 at a time: a system call for each id would cost more than the id.
///
/// A child that was forked without exec must not use its parent's copy: both would return the same bytes.
package struct BufferedRandomness: RandomNumberGenerator, Sendable {
    private var words: [UInt64] = []
    private static let wordsPerFill = 32

    package init() {
        words.reserveCapacity(Self.wordsPerFill)
    }

    package mutating func next() -> UInt64 {
        if let word = words.popLast() { return word }
        words.append(contentsOf: repeatElement(0, count: Self.wordsPerFill))
        let failed = words.withUnsafeMutableBytes { bytes in
            #if canImport(Darwin)
            arc4random_buf(bytes.baseAddress, bytes.count)
            return false
            #else
            // getentropy(3) fills the whole buffer, of up to 256 bytes, or fails.
            return getentropy(bytes.baseAddress, bytes.count) != 0
            #endif
        }
        if failed {
            var system = SystemRandomNumberGenerator()
            for index in words.indices { words[index] = system.next() }
        }
        return words.removeLast()
    }
}
