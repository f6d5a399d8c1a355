import TestSupport
import Testing

@Suite("The example service's settings", .endsWhenItHangs)
struct OrdersServiceTests {
    @Test(
        "a service whose server or key is missing or is none ends at once, with a sentence, and does not answer each order with 503 (C30)",
        arguments: [
            (["HAPAX_SERVER": "http://127.0.0.1:1"], "HAPAX_KEY is not set"),
            (["HAPAX_SERVER": "http://127.0.0.1:1", "HAPAX_KEY": ""], "HAPAX_KEY is not set"),
            (["HAPAX_KEY": "key"], "HAPAX_SERVER is not set"),
            (["HAPAX_SERVER": "shop", "HAPAX_KEY": "key"], "the server's URL must be"),
            (["HAPAX_SERVER": "http://127.0.0.1:1", "HAPAX_KEY": "a key"], "the write key is empty or holds"),
            (["HAPAX_SERVER": "http://127.0.0.1:1", "HAPAX_KEY_FILE": "/nowhere"], "HAPAX_KEY_FILE names cannot be read"),
        ])
    func incompleteSettingsEndIt(environment: [String: String], sentence: String) async throws {
        let unset = ["HAPAX_SERVER": "", "HAPAX_KEY": "", "HAPAX_KEY_FILE": "", "SHOP_PORT": "0"]
        let service = try ChildProcess("orders-service", environment: unset.merging(environment) { $1 })
        #expect(await service.waitUntilExit() == .exited(64))
        let errors = await service.remainingErrors()
        #expect(errors.hasPrefix("orders-service: ") && errors.contains(sentence))
    }
}
