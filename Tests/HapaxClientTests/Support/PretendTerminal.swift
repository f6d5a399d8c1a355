import Foundation

/// A terminal for a program to sit at, and its keyboard.
struct PretendTerminal {
    struct Unavailable: Error {}

    let keyboard: FileHandle
    let screen: FileHandle

    init() throws {
        #if canImport(Darwin)
        let main = posix_openpt(O_RDWR | O_NOCTTY)
        guard main >= 0, grantpt(main) == 0, unlockpt(main) == 0, let name = ptsname(main).map({ String(cString: $0) }) else {
            throw Unavailable()
        }
        #else
        // What those functions do; the C library's module does not show them (pts(4), ioctl_tty(2)).
        let main = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
        var unlocked: Int32 = 0
        var number: UInt32 = 0
        guard main >= 0, ioctl(main, 0x4004_5431, &unlocked) == 0, ioctl(main, 0x8004_5430, &number) == 0 else { throw Unavailable() }
        let name = "/dev/pts/\(number)"
        #endif
        keyboard = FileHandle(fileDescriptor: main, closeOnDealloc: true)
        let other = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard other >= 0 else { throw Unavailable() }
        screen = FileHandle(fileDescriptor: other, closeOnDealloc: true)
    }
}
