import Foundation
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

    @Test(
        "a disk without hard links holds a queue, or is refused with a sentence (C22)",
        .enabled(if: FileSystemWithoutLinks.isPossible, "a compiler and a loader that takes other calls are needed"),
        arguments: [true, false])
    func linksAreNotNeeded(renames: Bool) async throws {
        let disk = try await FileSystemWithoutLinks(renames: renames)
        let hapax = CommandLine(server: try IngestStandIn().url)
        func run(_ command: String) async throws -> (exit: ChildProcess.Exit, text: String) {
            let process = try ChildProcess(
                "hapax", command.split(separator: " ").map(String.init) + ["--queue", hapax.queue],
                environment: disk.environment.merging(["HAPAX_SERVER": hapax.server, "HAPAX_KEY": "secret-key"]) { $1 })
            let text = await process.remainingOutput()
            return (await process.waitUntilExit(), text + (await process.remainingErrors()))
        }
        for command in ["track one", "identity login anna", "identity pending", "identity opt-in", "flush"] {
            let (exit, text) = try await run(command)
            // What is there already needs no name.
            if renames { #expect(exit == .exited(0), "\(command): \(text)") }
            if !renames, command == "track one" { #expect(exit == .exited(1) && text.contains("use one on another disk"), "\(text)") }
        }
        #expect(try await run("identity show").text.contains("anna") == renames)
    }

    @Test("this machine's own disk is not shared")
    func ownDiskIsNotShared() { #expect(!FileSystem.isShared(TemporaryDirectory().path)) }
}
