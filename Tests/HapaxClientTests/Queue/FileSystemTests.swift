import HapaxSQLite
import TestSupport
import Testing

@Suite("FileSystem", .endsWhenItHangs)
struct FileSystemTests {
    private static let mounts = """
        24 29 0:22 / /proc rw,nosuid shared:13 - proc proc rw
        29 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
        92 29 0:259 / /home/with\\040blank rw,relatime shared:50 - nfs4 server:/export rw,vers=4.2
        93 29 7:1048577 / /broken
        """

    @Test(
        "a directory that other machines see is told by its mount's type", arguments: [(0xFE01, false), (0x10_0003, true), (0x16, false)])
    func typeDecides(device: UInt64, isShared: Bool) {
        #expect(FileSystem.isShared(device: device, mounts: Self.mounts) == isShared)
    }

    @Test("this machine's own disk is not shared")
    func ownDiskIsNotShared() { #expect(!FileSystem.isShared(TemporaryDirectory().path)) }
}
