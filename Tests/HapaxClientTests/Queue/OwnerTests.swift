import Foundation
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Files that root makes in another user's directory (C2)", .endsWhenItHangs)
struct OwnerTests {
    @Test(
        "belong to the directory's owner, whichever command makes them",
        .enabled(if: geteuid() == 0, "only root can make files in the name of another user"))
    func belongToTheDirectory() async throws {
        let hapax = CommandLine(server: try IngestStandIn().url)
        let nobody = try #require(getpwnam("nobody")).pointee
        try FileManager.default.createDirectory(atPath: hapax.queue, withIntermediateDirectories: true)
        try #require(chown(hapax.queue, nobody.pw_uid, nobody.pw_gid) == 0)
        // A process killed behind it leaves the log and what belongs to it.
        let holder = try hapax.client { $0.consent = .pending }
        for command in [["identity", "opt-in"], ["identity", "login", "anna"], ["track", "one"], ["flush"]] {
            #expect(try await hapax.start(command).finish().status == 0, "\(command)")
        }
        let endpoint = try holder.client.parts.configuration.endpoint()
        ProjectNotes(QueueDirectory(path: hapax.queue), endpoint) { Issue.record("\($0)") }.note("shop")
        let names = try FileManager.default.contentsOfDirectory(atPath: hapax.queue)
        #expect(
            Set(names).isSuperset(of: [
                "1.lock", "1.sqlite", "1.sqlite-shm", "1.sqlite-wal", "1.status", "ballast", "consent", "identity.json", "projects",
            ]))
        for name in names {
            var status = stat()
            #expect(stat(hapax.queue + "/" + name, &status) == 0 && status.st_uid == nobody.pw_uid, "\(name)")
        }
        // What somebody else made, a link to it above all, stays whose it was.
        let other = hapax.directory.path("other")
        #expect(FileManager.default.createFile(atPath: other, contents: nil))
        try FileManager.default.createSymbolicLink(atPath: hapax.queue + "/9.lock", withDestinationPath: other)
        _ = try await hapax.run("status")
        var status = stat()
        #expect(stat(other, &status) == 0 && status.st_uid == 0)
        await holder.client.shutdown(within: .zero)

        // So does the directory itself, where the command is the first to make it.
        let home = hapax.directory.path("home")
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        try #require(chown(home, nobody.pw_uid, nobody.pw_gid) == 0)
        let place = home + "/state/hapax"
        #expect(try await hapax.start(["track", "one", "--no-flush", "--queue", place]).finish().status == 0)
        for path in [home + "/state", place, place + "/1.sqlite"] {
            #expect(stat(path, &status) == 0 && status.st_uid == nobody.pw_uid, "\(path)")
        }
    }
}
