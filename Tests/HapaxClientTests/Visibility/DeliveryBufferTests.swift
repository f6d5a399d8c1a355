import HapaxModel
import Testing

@testable import HapaxClient

@Suite("What waits for one subscriber (I13)", .endsWhenItHangs)
struct DeliveryBufferTests {
    private func delivery(_ number: Int) -> EventDelivery { .dropped(reason: "test", count: number) }

    private func takeAll(_ buffer: inout DeliveryBuffer) -> [EventDelivery] {
        var taken: [EventDelivery] = []
        while let delivery = buffer.take() { taken.append(delivery) }
        return taken
    }

    @Test("up to the limit nothing is missed; one more costs the oldest, and its place says so", arguments: [1, 2, 7])
    func oldestIsMissed(limit: Int) {
        for extra in 0...(3 * limit) {
            var buffer = DeliveryBuffer(limit: limit)
            for number in 1...(limit + extra) { buffer.append(delivery(number)) }
            let kept = (extra + 1...limit + extra).map { delivery($0) }
            #expect(buffer.deliveries.count < 2 * limit || limit == 1, "no more is held than twice the limit")
            #expect(takeAll(&buffer) == (extra == 0 ? kept : [.missed(extra)] + kept))
        }
    }

    @Test("whatever the limit is, the latest one is kept", arguments: [0, -1])
    func oneIsKept(limit: Int) {
        var buffer = DeliveryBuffer(limit: limit)
        for number in 1...3 { buffer.append(delivery(number)) }
        #expect(takeAll(&buffer) == [.missed(2), delivery(3)])
    }

    @Test("a subscription that ends twice, as with its task and its client, ends once for who waits")
    func endsOnce() async {
        for _ in 0..<100 {
            let subscription = DeliverySubscription(limit: 1)
            async let next = subscription.next()
            for _ in 0..<5 { await Task.yield() }
            for _ in 0..<2 { subscription.end() }
            #expect(await next == nil)
        }
    }

    @Test("against a plain model, whatever is appended and taken: nothing twice, nothing out of order, every loss counted")
    func agreesWithAModel() {
        var random = SystemRandomNumberGenerator()
        for limit in 1...5 {
            var buffer = DeliveryBuffer(limit: limit)
            var model: [EventDelivery] = []
            var missed = 0
            for number in 1...500 {
                if Int.random(in: 0..<5, using: &random) < 3 {
                    buffer.append(delivery(number))
                    model.append(delivery(number))
                    if model.count > limit {
                        model.removeFirst()
                        missed += 1
                    }
                    continue
                }
                let expected: EventDelivery? = missed > 0 ? .missed(missed) : model.isEmpty ? nil : model.removeFirst()
                missed = 0
                #expect(buffer.take() == expected)
            }
        }
    }
}
